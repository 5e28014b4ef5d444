"""The classes of the scores in a file: their names, and their order."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from densecal.errors import ArtefactError
from densecal.io.files import listed

if TYPE_CHECKING:
    from densecal.io.output_files import FileLayout


def score_classes(path: Path, named: tuple[str, ...], layout: FileLayout) -> tuple[str, ...]:
    """Return the classes in the order of the scores: those of the file, of the user, or of earlier data."""
    known = layout.classes or layout.score_classes
    if not named or (layout.score_classes and set(named) != set(known)):
        return layout.score_classes or known
    if known and set(named) != set(known):
        raise ArtefactError(
            f"{path} does not have the classes of the calibrator or of earlier files: {class_difference(named, known)} "
            f"Rename them, or state the classes in the order of the scores of {path.name}: "
            f"--classes {','.join(known[:3])},..."
        )
    return named


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
