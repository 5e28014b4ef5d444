"""The classes of a file: their names, their order in the scores, and labels that name them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from densecal.arrays.checks import check_labels
from densecal.errors import ArtefactError
from densecal.io.atomic_files import listed, quoted
from densecal.io.tables import as_texts

if TYPE_CHECKING:
    from densecal.io.output_files import FileLayout


def check_named_classes(path: Path, named: tuple[str, ...], layout: FileLayout) -> tuple[str, ...]:
    """Return the classes that a file names, in its order, or those that the user states instead."""
    known = layout.classes or layout.score_classes
    if not known or set(named) == set(known):
        return named
    if layout.score_classes:
        return layout.score_classes
    raise ArtefactError(
        f"{path} does not have the classes of the calibrator or of earlier files: {class_difference(named, known)} "
        f"Rename them, or state the classes in the order of the scores of {path.name}: "
        f"--classes {','.join(known[:3])},..."
    )


def class_difference(found: Sequence[str], expected: Sequence[str]) -> str:
    """Return which of the expected class names are missing, and which of those found are unknown."""
    missing = [name for name in expected if name not in found]
    unknown = [name for name in found if name not in expected]
    sides = {"missing": missing, "unknown": unknown}
    return f"{'; '.join(f'{side}: {listed(names)}' for side, names in sides.items() if names)}."


def reorder(logits: Any, labels: Any, places: list[int]) -> tuple[Any, Any]:
    """Return the columns of the logits in the order of their places, and the labels that belong to them."""
    if labels is not None and labels.ndim == 1 and np.isin(labels, places).all():
        labels = np.argsort(places)[np.asarray(labels, dtype=np.int64)]
    return logits[:, places], labels


def encode_labels(path: Path, labels: Any, classes: Sequence[str]) -> Any:
    """Return the position of each label among the classes; integers that are not class names are positions."""
    if labels.ndim != 1:
        return labels
    texts = as_texts(path, labels, "label")
    places = {name: place for place, name in enumerate(classes)}
    unknown = sorted(set(texts) - places.keys())
    if not unknown:
        return np.array([places[text] for text in texts])
    if labels.dtype.kind in "biuf":
        return labels
    message = f"{path} has the labels {quoted(unknown)}, but "
    if classes:
        raise ArtefactError(f"{message}the classes are {quoted(classes)}.")
    raise ArtefactError(
        f"{message}its scores do not name their classes. Name them in the order of the scores: "
        f"--classes {','.join(unknown[:3])} (with one score: the other class, then its own)."
    )


def fill_missing(labels: Any, has_label: Any, n_classes: int) -> Any:
    """Return one label for each sample, -1 for those without; None if no sample has a label."""
    if not has_label.any():
        return None
    filled = np.full(len(has_label), -1)
    filled[has_label] = check_labels(labels, int(has_label.sum()), n_classes)
    return filled
