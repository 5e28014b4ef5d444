"""Shifted data: what ``fit(..., shifted=)`` takes, checked and joined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from densecal.arrays import Array, ArrayLike, namespace
from densecal.arrays.checks import check_labels, check_logits
from densecal.outputs import Distances, Outputs

ShiftedSet: TypeAlias = Outputs | tuple[ArrayLike, ArrayLike, ArrayLike]
"""Outputs with labels and features, or (logits, labels, distances)."""
Shifted: TypeAlias = ShiftedSet | Sequence[ShiftedSet]


class ShiftedData(NamedTuple):
    """Logits, labels and density scores of labelled shifted data."""

    logits: Array
    labels: Array
    scores: Array


def collect_shifted(
    shifted: Shifted, n_classes: int, n_layers: int, scores_of: Callable[[Outputs | Array | Distances], Array]
) -> ShiftedData:
    """Join one or several shifted data sets; ``scores_of`` turns outputs or distances into density scores."""
    several = [shifted] if isinstance(shifted, (Outputs, tuple)) else list(shifted)
    if not several:
        raise ValueError("shifted holds no data set; leave it out for the paper's fit.")
    parts = []
    for number, one in enumerate(several):
        name = f"shifted[{number}]"
        logits, labels, source = (one.logits, one.labels, one) if isinstance(one, Outputs) else one
        if labels is None:
            raise ValueError(f"{name} has no labels; perturbed copies keep the labels of their originals.")
        logits = check_logits(logits, f"{name} logits")
        if logits.shape[1] != n_classes:
            raise ValueError(f"{name} has {logits.shape[1]} classes, the validation set {n_classes}.")
        scores = scores_of(source)
        if scores.shape[0] != logits.shape[0]:
            raise ValueError(f"{name} has {logits.shape[0]} logits, but {scores.shape[0]} distances.")
        if scores.shape[1] != n_layers:
            raise ValueError(f"{name} has {scores.shape[1]} layers, the validation set {n_layers}.")
        parts.append(ShiftedData(logits, check_labels(labels, len(logits), n_classes, like=logits), scores))
    xp = namespace(parts[0].logits)
    return ShiftedData(*(xp.concat(columns) for columns in zip(*parts, strict=True)))
