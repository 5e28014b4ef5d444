"""The API reference: one page a module, its public names in order, written for mkdocstrings."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from pathlib import Path

METHOD_PAGES = "densecal.calibrators"

PAGES = {
    "data": (
        "Outputs and banks",
        "What a classifier said about a data set, and what it was trained on.",
        "densecal",
        ("Outputs", "FeatureBank"),
    ),
    "calibrators": (
        "Calibrators",
        "What all methods share, and how they are joined. Each method's own reference is on "
        "[its page](../methods/index.md).",
        "densecal",
        ("make_calibrator", "METHODS", "Calibrator", "Chain", "CalibratedClassifier", "load", "Paper"),
    ),
    "errors": (
        "Errors and warnings",
        "What goes wrong, and how it is said.",
        "densecal",
        ("ArtefactError", "CalibrationWarning"),
    ),
    "metrics": (
        "Measures",
        "Definitions and corner cases are on [their own page](../measures.md).",
        "densecal.metrics",
        None,
    ),
    "torch": ("PyTorch", "From an `nn.Module` to a calibrated one. Needs `densecal[torch]`.", "densecal.torch", None),
    "shift": (
        "Shift and data sets",
        "Corruptions, perturbations and readers. Needs `densecal[torch]`.",
        "densecal.shift",
        None,
    ),
    "plots": ("Plots", "matplotlib: `ax=` goes in, axes come out.", "densecal.plots", None),
    "evaluation": (
        "Evaluation and report",
        "Several calibrators on several conditions, and the page about them.",
        "densecal.evaluation",
        None,
    ),
}


def write_reference(pages: Path) -> None:
    """Write the reference's pages."""
    folder = pages / "api"
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for page, (title, about, module, names) in PAGES.items():
        package = importlib.import_module(module)
        wanted = list(names if names is not None else package.__all__)
        if page == "evaluation":
            wanted += [f"densecal.report:{name}" for name in ("write_report", "judge", "Verdict")]
        blocks = [f"::: {path}" for path in _paths(module, wanted)]
        (folder / f"{page}.md").write_text(f"# {title}\n\n{about}\n\n" + "\n\n".join(blocks) + "\n", encoding="utf-8")
        shown = ", ".join(f"`{name.rpartition(':')[2]}`" for name in wanted)
        lines.append(f"| [{title}]({page}.md) | {shown} |")
    table = "| page | names |\n|---|---|\n" + "\n".join(lines)
    text = f"# API reference\n\nEvery public name, with a runnable example in its docstring.\n\n{table}\n"
    (folder / "index.md").write_text(text, encoding="utf-8")


def _paths(module: str, names: Iterable[str]) -> Iterable[str]:
    """Return where each name is defined: the public packages import lazily, which no static reader can follow."""
    for name in names:
        home, _, own = name.rpartition(":")
        package = importlib.import_module(home or module)
        homes = getattr(package, "_HOME", {})
        found = getattr(package, own)
        place = getattr(found, "__module__", None)
        if own.isupper() or own not in vars(importlib.import_module(place or module)):
            place = homes.get(own, module)
            place = place if place.startswith("densecal") else f"{module}.{place}"
            place = _defining(place, own)
        yield f"{place}.{own}"


def _defining(module: str, name: str) -> str:
    """Follow a re-exported constant to the module that assigns it."""
    import ast

    source = Path(importlib.import_module(module).__file__ or "")
    stub = source.with_suffix(".pyi")
    tree = ast.parse((stub if stub.exists() else source).read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and any(alias.name == name for alias in node.names):
            return _defining(f"{module}.{node.module}" if node.level else node.module, name)
    return module
