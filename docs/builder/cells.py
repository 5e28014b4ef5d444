"""Run a tutorial cell by cell and keep what each cell printed and drew.

    python docs/builder/cells.py TUTORIAL FOLDER

A tutorial is a script in the percent format: a line ``# %% [markdown]`` opens a cell of comments that become text, a
line ``# %% A caption`` a cell of code. FOLDER receives ``cells.json``, the figures that were open after each cell, and
the HTML pages the tutorial wrote. The tutorial runs in an empty folder of its own; a cell that fails ends it.
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
LARGEST_SVG = 400_000
"""A drawing of more bytes than this is kept as pixels instead."""


@dataclass
class Cell:
    """One piece of a tutorial."""

    kind: str
    source: str
    caption: str = ""
    output: str = ""
    figures: list[str] = field(default_factory=list)


def read_cells(text: str, language: str) -> list[Cell]:
    """Split a script at its markers; what stands before the first is left out."""
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
    """Execute the code cells in one namespace."""
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
        cell.figures = _keep_figures(script.stem, folder, sum(len(before.figures) for before in cells))


def _show_warning(message: Warning | str, category: type[Warning], *_: object, **__: object) -> None:
    sys.stderr.write(textwrap.fill(f"{category.__name__}: {message}", 100) + "\n")


def _keep_figures(name: str, folder: Path, already: int) -> list[str]:
    if "matplotlib.pyplot" not in sys.modules:
        return []
    import matplotlib.pyplot as plt

    kept = []
    for number in plt.get_fignums():
        figure = plt.figure(number)
        path = folder / f"{name}-{already + len(kept) + 1}.svg"
        with plt.rc_context({"svg.hashsalt": path.stem}):
            figure.savefig(path, transparent=True, bbox_inches="tight", metadata={"Date": None})
        if path.stat().st_size > LARGEST_SVG:
            path.unlink()
            path = path.with_suffix(".png")
            figure.savefig(path, transparent=True, bbox_inches="tight", dpi=160)
        kept.append(path.name)
    plt.close("all")
    return kept


def run_shell(cells: list[Cell], script: Path, folder: Path) -> None:
    """Run each cell's commands, one shell a cell, in the same working folder."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    surroundings = {**os.environ, "PATH": path, "COLUMNS": "100", "TERM": "dumb", "NO_COLOR": "1"}
    for cell in cells:
        if cell.kind == "console":
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", cell.source],
                env=surroundings,
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
    """Run one tutorial."""
    language, run = RUNNERS[script.suffix]
    cells = read_cells(script.read_text(encoding="utf-8"), language)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as desk, contextlib.chdir(desk):
        run(cells, script, folder)
        for page in Path(desk).glob("*.html"):
            shutil.copy(page, folder / page.name)
        for cell in cells:
            cell.output = cell.output.replace(f"{desk}/", "").replace(desk, ".")
    text = json.dumps([asdict(cell) for cell in cells], indent=1)
    (folder / "cells.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
