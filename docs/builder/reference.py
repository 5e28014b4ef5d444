"""The API reference: one page per topic, written for mkdocstrings."""

from __future__ import annotations

import importlib
from pathlib import Path

PAGES: dict[str, tuple[str, str, str, tuple[str, ...]]] = {
    "data": (
        "Outputs and banks",
        "The outputs of a classifier on one data set, and the training features to compare them with.",
        "densecal",
        ("Outputs", "OutputShards", "Distances", "FeatureBank"),
    ),
    "calibrators": (
        "Calibrators",
        "What all methods share, and how to combine them. Each method has [its own page](../methods/index.md).",
        "densecal",
        ("make_calibrator", "METHODS", "Calibrator", "Chain", "CalibratedClassifier", "load", "Citation"),
    ),
    "metrics": (
        "Metrics",
        "Definitions and corner cases are on [the metrics page](../metrics.md).",
        "densecal.metrics",
        (),
    ),
    "monitoring": (
        "Accuracy without labels",
        "`Calibrator.estimate_accuracy` and `CalibratedModel.estimate_accuracy` estimate the accuracy on a batch; a "
        "monitor follows a stream.",
        "densecal",
        ("AccuracyEstimate", "Monitor", "monitor.windows.Window", "monitor.windows.Alarm"),
    ),
    "evaluation": ("Evaluation", "Several calibrators on several test sets.", "densecal.evaluation", ()),
    "torch": ("PyTorch", "From an `nn.Module` to a calibrated one. Needs `densecal[torch]`.", "densecal.torch", ()),
    "integrations": (
        "Hugging Face and Lightning",
        "Needs `densecal[hf]` or `densecal[lightning]`. Tutorials: [Hugging Face](../tutorials/hugging-face.md), "
        "[Lightning](../tutorials/lightning.md).",
        "densecal.integrations",
        ("huggingface.CalibratedPreTrainedModel", "lightning.CalibrationCallback"),
    ),
    "ray": (
        "Ray",
        "Needs `densecal[ray]`. [The tutorial](../tutorials/larger-data.md), and [what it costs](../scale.md).",
        "densecal.integrations.ray",
        (),
    ),
    "shift": (
        "Shift and data sets",
        "Corruptions, perturbations and readers of data sets. Needs `densecal[torch]`.",
        "densecal.shift",
        (),
    ),
    "plots": ("Plots", "Figures with matplotlib. Every function takes `ax=` and returns it.", "densecal.plots", ()),
    "report": ("Report", "The HTML report and its verdict.", "densecal.report", ()),
    "errors": (
        "Errors and warnings",
        "What densecal raises in addition to the exceptions of Python and scikit-learn's `NotFittedError`.",
        "densecal",
        ("ArtefactError", "CalibrationWarning"),
    ),
}
"""Of each page: title, introduction, package, and names (all public names of the package if empty)."""

IN_PARTS = ("Calibrator", "FeatureBank")
"""Classes of which some methods are written in a base class, in another file."""
INHERITED = "\n    options:\n      inherited_members: true"


def write_reference(pages: Path) -> None:
    """Write the pages of the reference and their index."""
    folder = pages / "api"
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["# API reference\n\nEvery public name. A test runs the examples.\n\n| page | names |\n|---|---|"]
    for page, (title, introduction, package, chosen) in PAGES.items():
        names = chosen or importlib.import_module(package).__all__
        blocks = "\n\n".join(f"::: {package}.{name}" + (INHERITED if name in IN_PARTS else "") for name in names)
        (folder / f"{page}.md").write_text(f"# {title}\n\n{introduction}\n\n{blocks}\n", encoding="utf-8")
        lines.append(f"| [{title}]({page}.md) | {', '.join(f'`{name}`' for name in names)} |")
    (folder / "index.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
