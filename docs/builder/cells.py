"""Run a tutorial cell by cell and save the output and the figures of each cell.

    python docs/builder/cells.py TUTORIAL FOLDER

A tutorial is a script in the percent format: ``# %% [markdown]`` starts text, ``# %% A caption`` starts code. It runs
in an empty folder and stops at the first error. FOLDER receives ``cells.json``, the figures, and the HTML files that
the tutorial wrote.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

MARKER = re.compile(r"^# %%[ \t]*(.*)$", re.M)
MAX_SVG_BYTES = 400_000
"""Larger figures are saved as PNG."""


@dataclass
class Cell:
    """One cell of a tutorial and its output."""

    kind: str
    source: str
    caption: str = ""
    output: str = ""
    figures: list[str] = field(default_factory=list)


def read_cells(text: str, language: str) -> list[Cell]:
    """Split a script at its markers; text before the first marker is ignored."""
    parts = MARKER.split(text)[1:]
    cells = []
    for head, body in zip(parts[::2], parts[1::2], strict=True):
        if head.strip() == "[markdown]":
            lines = [re.sub(r"^# ?", "", line) for line in body.strip().splitlines()]
            cells.append(Cell("markdown", "\n".join(lines)))
        else:
            cells.append(Cell(language, body.strip("\n").rstrip(), caption=head.strip()))
    return cells


def run_python(cells: list[Cell], script: Path, folder: Path) -> None:
    from densecal import CalibrationWarning

    space: dict[str, object] = {"__name__": "__main__"}
    warnings.simplefilter("ignore")
    warnings.simplefilter("always", CalibrationWarning)
    warnings.showwarning = _show_warning
    for cell in cells:
        if cell.kind != "python":
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            exec(compile(cell.source, script.name, "exec"), space)
        cell.output = printed.getvalue()
        cell.figures = _save_figures(script.stem, folder, sum(len(before.figures) for before in cells))


def _show_warning(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
    sys.stderr.write(textwrap.fill(f"{category.__name__}: {message}", 100) + "\n")


def _save_figures(name: str, folder: Path, already: int) -> list[str]:
    if "matplotlib.pyplot" not in sys.modules:
        return []
    import matplotlib.pyplot as plt

    saved = []
    for number in plt.get_fignums():
        figure = plt.figure(number)
        path = folder / f"{name}-{already + len(saved) + 1}.svg"
        with plt.rc_context({"svg.hashsalt": path.stem}):
            figure.savefig(path, transparent=True, bbox_inches="tight", metadata={"Date": None})
        if path.stat().st_size > MAX_SVG_BYTES:
            path.unlink()
            path = path.with_suffix(".png")
            figure.savefig(path, transparent=True, bbox_inches="tight", dpi=160)
        saved.append(path.name)
    plt.close("all")
    return saved


def run_shell(cells: list[Cell], script: Path, folder: Path) -> None:
    """Run the commands of each cell in a shell of their own, in one working folder."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1"}
    for cell in cells:
        if cell.kind == "console":
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", cell.source],
                env=environment,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                check=False,
            )
            if done.returncode:
                raise RuntimeError(f"{script.name}: {cell.source}\n{done.stdout}")
            cell.output = done.stdout


RUNNERS: dict[str, tuple[str, Callable[[list[Cell], Path, Path], None]]] = {
    ".py": ("python", run_python),
    ".sh": ("console", run_shell),
}


def main(script: Path, folder: Path) -> None:
    language, run = RUNNERS[script.suffix]
    cells = read_cells(script.read_text(encoding="utf-8"), language)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work, contextlib.chdir(work):
        run(cells, script, folder)
        for page in Path(work).glob("*.html"):
            shutil.copy(page, folder / page.name)
        for cell in cells:
            cell.output = cell.output.replace(f"{work}/", "").replace(work, ".")
    text = json.dumps([asdict(cell) for cell in cells], indent=1)
    (folder / "cells.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
