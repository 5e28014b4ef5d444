"""Labels of a file: integers, or the names of classes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from densecal.arrays.checks import check_labels
from densecal.errors import ArtefactError
from densecal.io.files import quoted
from densecal.io.tables import as_texts

MISSING = -1
"""The label of a sample that has none yet."""


def fill_missing(labels: Any, has_label: Any, n_classes: int) -> Any:
    """Return one label for each sample, MISSING for those without; None if no sample has a label."""
    if not has_label.any():
        return None
    filled = np.full(len(has_label), MISSING)
    filled[has_label] = check_labels(labels, int(has_label.sum()), n_classes)
    return filled


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
    if not classes:
        raise ArtefactError(
            f"{path} has the labels {quoted(unknown)}, but its scores do not name their classes. Name them in the "
            f"order of the scores: --classes {','.join(unknown[:3])} (with one score: the other class, then its own)."
        )
    raise ArtefactError(f"{path} has the labels {quoted(unknown)}, but the classes are {quoted(classes)}.")
