"""Build the site: run the tutorials, generate pages, then run mkdocs in strict mode.

    python docs/build.py [--site site] [--work runs/docs] [--reuse]

``docs/pages`` contains pages and, with the suffix ``.jinja``, templates that are filled with results. All pages are
collected in the work folder. The output of the tutorials is cached there until a script or the package changes.
"""

from __future__ import annotations

import argparse
import logging
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from builder import descriptions, evidence, pictures, reference, tutorials

from densecal.metrics import METRICS
from densecal.shift import PERTURBATIONS

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent


def gather(pages: Path, cache: Path, *, reuse: bool = False) -> None:
    """Write every page of the site into one folder."""
    shutil.rmtree(pages, ignore_errors=True)
    pages.mkdir(parents=True)
    state = "reused" if reuse else tutorials.fingerprint(ROOT / "src", DOCS / "builder" / "cells.py")
    tutorials.write_tutorials(pages, cache, state)
    scripts = {path.stem: path for path in sorted((DOCS / "metrics").glob("*.py"))}
    cells = tutorials.run_scripts(list(scripts.values()), cache, state)
    demo = evidence.demo_table(cache, state)
    known = {
        "home": pictures.draw_home(pages / "assets"),
        "demo": demo,
        "demo_table": evidence.demo_markdown(demo),
        "methods": descriptions.method_pages(demo),
        "metrics": METRICS,
        "description_of": descriptions.description_of,
        "call_of": descriptions.call_of,
        "perturbations": PERTURBATIONS,
        "script": lambda name: tutorials.page_of(tutorials.read_cells(cells[name]), scripts[name]),
        "evidence": evidence,
        "file": lambda name: (ROOT / name).read_text(encoding="utf-8"),
    }
    copy_pages(pages, known)
    reference.write_reference(pages)
    shutil.copy(DOCS / "reproduction.md", pages)
    shutil.copytree(DOCS / "reproduction", pages / "reproduction")


def copy_pages(pages: Path, known: dict[str, Any]) -> None:
    """Copy the pages and fill the templates."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    source = DOCS / "pages"
    environment = Environment(
        loader=FileSystemLoader(source), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    for path in sorted(source.rglob("*")):
        name = path.relative_to(source)
        if path.is_dir() or name.name.startswith("_"):
            continue
        target = pages / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".jinja":
            text = environment.get_template(name.as_posix()).render(known)
            target.with_suffix("").write_text(text, encoding="utf-8")
        else:
            shutil.copy(path, target)
    template = environment.get_template("methods/_method.md.jinja")
    for method in known["methods"]:
        (pages / "methods" / f"{method['short']}.md").write_text(template.render(method), encoding="utf-8")


def build(pages: Path, site: Path) -> None:
    """Run mkdocs; any warning, such as a broken link, is an error."""
    from mkdocs.commands.build import build as mkdocs_build
    from mkdocs.config import load_config
    from mkdocs.exceptions import Abort

    config = load_config(str(ROOT / "mkdocs.yml"), docs_dir=str(pages), site_dir=str(site), strict=True)
    config.plugins.on_startup(command="build", dirty=False)
    try:
        mkdocs_build(config)
    except Abort as error:
        raise SystemExit(f"The site was not built: {error}") from None
    finally:
        config.plugins.on_shutdown()


def main(arguments: list[str] | None = None) -> None:
    """Build the site."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--site", type=Path, default=ROOT / "site")
    parser.add_argument("--work", type=Path, default=ROOT / "runs" / "docs")
    parser.add_argument("--reuse", action="store_true", help="use cached output although the package changed")
    chosen = parser.parse_args(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    start = time.perf_counter()
    work = chosen.work.resolve()
    gather(work / "pages", work / "cache", reuse=chosen.reuse)
    gathered = time.perf_counter()
    build(work / "pages", chosen.site.resolve())
    sys.stdout.write(
        f"Built {chosen.site}: {gathered - start:.0f} s for tutorials and pages, "
        f"{time.perf_counter() - gathered:.0f} s for mkdocs.\n"
    )


if __name__ == "__main__":
    main()
