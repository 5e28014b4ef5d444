"""Run the tutorials and write their text, code, output and figures as pages."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[1]
ROOT = DOCS.parent
FOLDER = DOCS / "tutorials"
N_WORKERS = 2
TIME_LIMIT = 600


def run_scripts(scripts: Sequence[Path], cache: Path, state: str) -> dict[str, Path]:
    """Run the scripts that changed since they were cached; return the folder of each result."""
    with ThreadPoolExecutor(N_WORKERS) as pool:
        kept = pool.map(lambda script: _run(script, cache, state), scripts)
        return {script.stem: folder for script, folder in zip(scripts, kept, strict=True)}


def read_cells(kept: Path) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = json.loads((kept / "cells.json").read_text(encoding="utf-8"))
    return cells


def write_tutorials(pages: Path, cache: Path, state: str) -> None:
    """Run every tutorial and write its page and figures."""
    # Start the slowest tutorials first to balance the workers.
    scripts = sorted((path for path in FOLDER.iterdir() if path.suffix in (".py", ".sh")), reverse=True)
    target = pages / "tutorials"
    target.mkdir(parents=True, exist_ok=True)
    kept = run_scripts(scripts, cache, state)
    for script in scripts:
        for file in kept[script.stem].iterdir():
            if file.name != "cells.json":
                shutil.copy(file, target / file.name)
        text = page_of(read_cells(kept[script.stem]), script)
        (target / f"{script.stem.replace('_', '-')}.md").write_text(text, encoding="utf-8")


def page_of(cells: list[dict[str, Any]], script: Path) -> str:
    parts = []
    for cell in cells:
        if cell["kind"] == "markdown":
            parts.append(str(cell["source"]))
            continue
        source = _prompted(cell["source"]) if cell["kind"] == "console" else cell["source"]
        parts.append(f"```{cell['kind']}\n{source}\n```")
        output = _plain(str(cell["output"]))
        if output:
            parts.append(f'```{{.text .output title="Output"}}\n{output}\n```')
        caption = str(cell["caption"]) or "Figure drawn by the code above."
        for figure in cell["figures"]:
            parts.append(f"![{caption}]({figure}){{.figure}}\n\n*{caption}*{{.caption}}")
    parts.append(
        f"---\n\n*The output on this page was produced when the site was built, by "
        f"`{script.relative_to(ROOT)}`.*{{.provenance}}"
    )
    return "\n\n".join(parts) + "\n"


def _prompted(source: str) -> str:
    """Put a prompt before each command, not before comments, continued lines and here-documents."""
    lines, continued, terminator = [], False, ""
    for line in source.splitlines():
        inside = continued or terminator or line.startswith("#") or not line
        lines.append(line if inside else f"$ {line}")
        continued = line.endswith("\\")
        if terminator:
            terminator = "" if line == terminator else terminator
        elif opened := re.search(r"<< '(\w+)'", line):
            terminator = opened[1]
    return "\n".join(lines)


def _plain(output: str) -> str:
    output = re.sub(r"\x1b\[[0-9;]*m", "", output)
    return "\n".join(line.rstrip() for line in output.splitlines()).strip("\n")


def _run(script: Path, cache: Path, state: str) -> Path:
    key = hashlib.sha256(script.read_bytes() + state.encode()).hexdigest()[:12]
    kept = cache / f"{script.stem}-{key}"
    if (kept / "cells.json").exists():
        return kept
    for old in cache.glob(f"{script.stem}-*"):
        shutil.rmtree(old)
    threads = str(max(1, (os.cpu_count() or 2) // N_WORKERS))
    settings = {"MPLBACKEND": "agg", "OMP_NUM_THREADS": threads, "PYTHONHASHSEED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    environment = {**os.environ, **settings}
    command = [sys.executable, str(Path(__file__).with_name("cells.py")), str(script), str(kept)]
    done = subprocess.run(command, env=environment, text=True, capture_output=True, timeout=TIME_LIMIT, check=False)
    if done.returncode:
        shutil.rmtree(kept, ignore_errors=True)
        raise SystemExit(f"The tutorial {script.name} failed:\n{done.stdout}{done.stderr}")
    return kept


def fingerprint(*places: Path) -> str:
    """Return a fingerprint of the code that the scripts use."""
    found = hashlib.sha256()
    for place in places:
        files = [place] if place.is_file() else sorted(place.rglob("*.py"))
        for file in files:
            found.update(file.read_bytes())
    return found.hexdigest()
