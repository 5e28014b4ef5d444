"""Moved data: what ``DAC.fit(..., shifted=)`` takes, checked and joined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from densecal.arrays import Array, namespace
from densecal.arrays.checks import check_labels, check_logits
from densecal.outputs import Outputs

Shifted = Outputs | tuple[Array, Array, Array]
"""Outputs with features and labels, or (logits, labels, distances)."""


class Moved(NamedTuple):
    """Logits, labels and density scores of labelled data that have moved."""

    logits: Array
    labels: Array
    scores: Array


def gather_moved(
    shifted: Shifted | Sequence[Shifted], classes: int, layers: int, measure: Callable[..., Array]
) -> Moved:
    """Join one or several moved data sets; ``measure(samples, features, distances)`` gives their scores."""
    several = [shifted] if isinstance(shifted, (Outputs, tuple)) else list(shifted)
    if not several:
        raise ValueError("shifted holds no data set; leave it out for the paper's fit.")
    parts = [_checked(one, f"shifted[{number}]", classes, layers, measure) for number, one in enumerate(several)]
    xp = namespace(parts[0].logits)
    return Moved(*(xp.concat(columns) for columns in zip(*parts, strict=True)))


def _checked(shifted: Shifted, name: str, classes: int, layers: int, measure: Callable[..., Array]) -> Moved:
    if isinstance(shifted, Outputs):
        logits, labels, features, distances = shifted.logits, shifted.labels, shifted.features, None
    else:
        (logits, labels, distances), features = shifted, None
    if labels is None:
        raise ValueError(f"{name} has no labels; perturbed copies keep the labels of their originals.")
    logits = check_logits(logits, f"{name} logits")
    if logits.shape[1] != classes:
        raise ValueError(f"{name} has {logits.shape[1]} classes, the validation set {classes}.")
    labels = check_labels(labels, logits.shape[0], logits.shape[1], like=logits)
    scores = measure(logits.shape[0], features, distances)
    if scores.shape[1] != layers:
        raise ValueError(f"{name} has {scores.shape[1]} layers, the validation set {layers}.")
    return Moved(logits, labels, scores)
