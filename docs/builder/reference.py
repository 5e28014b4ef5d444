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
        "The interface of all methods, and how to combine them. Each method has [its own page](../methods/index.md).",
        "densecal",
        ("make_calibrator", "METHODS", "Calibrator", "Chain", "CalibratedClassifier", "load", "Citation"),
    ),
    "metrics": (
        "Metrics",
        "See [the metrics page](../metrics.md) for definitions and corner cases.",
        "densecal.metrics",
        (),
    ),
    "monitoring": (
        "Accuracy without labels",
        "`Calibrator.estimate_accuracy` and `CalibratedModel.estimate_accuracy` estimate the accuracy on a batch, "
        "`Monitor` over time.",
        "densecal",
        ("AccuracyEstimate", "Monitor", "monitor.windows.Window", "monitor.alarms.Alarm"),
    ),
    "evaluation": ("Evaluation", "Evaluation of several calibrators on several test sets.", "densecal.evaluation", ()),
    "torch": ("PyTorch", "Calibration of an `nn.Module`. Requires `densecal[torch]`.", "densecal.torch", ()),
    "integrations": (
        "Hugging Face and Lightning",
        "Requires `densecal[hf]` or `densecal[lightning]`. See the tutorials on [Hugging Face]"
        "(../tutorials/hugging-face.md) and [Lightning](../tutorials/lightning-and-mlflow.md).",
        "densecal.integrations",
        ("huggingface.CalibratedPreTrainedModel", "lightning.CalibrationCallback"),
    ),
    "ray": (
        "Ray",
        "Requires `densecal[ray]`. See the [tutorial](../tutorials/larger-data.md) and [Scale](../scale.md).",
        "densecal.integrations.ray",
        (),
    ),
    "shift": (
        "Shift and data sets",
        "Corruptions, perturbations and data set readers. Requires `densecal[torch]`.",
        "densecal.shift",
        (),
    ),
    "plots": ("Plots", "Figures with matplotlib. Every function takes and returns axes.", "densecal.plots", ()),
    "report": ("Report", "The HTML report and its verdict.", "densecal.report", ()),
    "errors": (
        "Errors and warnings",
        "Raised in addition to Python's exceptions and scikit-learn's `NotFittedError`.",
        "densecal",
        ("ArtefactError", "CalibrationWarning"),
    ),
}
"""The title, introduction, package and names of each page (if empty, all public names of the package)."""

IN_PARTS = ("Calibrator", "FeatureBank")
"""Classes with public methods in a base class in another file."""
INHERITED = "\n    options:\n      inherited_members: true"


def write_reference(pages: Path) -> None:
    """Write the pages of the reference and their index."""
    folder = pages / "api"
    folder.mkdir(parents=True, exist_ok=True)
    lines = ["# API reference\n\nAll public names. The examples are tested.\n\n| page | names |\n|---|---|"]
    for page, (title, introduction, package, chosen) in PAGES.items():
        names = chosen or importlib.import_module(package).__all__
        blocks = "\n\n".join(f"::: {package}.{name}" + (INHERITED if name in IN_PARTS else "") for name in names)
        (folder / f"{page}.md").write_text(f"# {title}\n\n{introduction}\n\n{blocks}\n", encoding="utf-8")
        lines.append(f"| [{title}]({page}.md) | {', '.join(f'`{name}`' for name in names)} |")
    (folder / "index.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
