"""Checks of what metrics take: probabilities and labels, or top-1 confidence and correctness."""

from __future__ import annotations

from collections.abc import Sequence

from densecal.arrays import Array, ArrayLike, as_array, is_torch, namespace, to_numpy
from densecal.arrays.checks import RANGE_TOLERANCE, check_finite_floats, check_labels, check_probabilities


def read_top1(probabilities: ArrayLike, labels: ArrayLike | None) -> tuple[Array, Array]:
    """Return top-1 confidence (N,) and correctness (N,) from (probabilities, labels) or (confidence, correct)."""
    first = as_array(probabilities)
    if first.ndim == 1:
        confidence = check_confidence(first)
        return confidence, check_correct(labels, confidence)
    if first.ndim == 2 and as_array(labels).ndim == 1 and _is_boolean(as_array(labels)):
        raise TypeError(
            "labels must be integers when probabilities are (samples, classes), got booleans. "
            "Booleans that say whether a prediction was correct belong beside the 1-d top-1 confidence."
        )
    return top1_of(*read_distribution(first, labels))


def top1_of(probabilities: Array, labels: Array) -> tuple[Array, Array]:
    """Return the top-1 confidence and whether the first of the most probable classes is the label."""
    predicted = namespace(probabilities).argmax(probabilities, axis=1)
    return take_classes(probabilities, predicted), predicted == labels


def take_classes(probabilities: Array, classes: Array) -> Array:
    """Return each row's probability of its class in ``classes``."""
    rows = namespace(probabilities).arange(classes.shape[0], device=getattr(classes, "device", None))
    return probabilities[rows, classes]


def read_distribution(probabilities: ArrayLike, labels: ArrayLike | None) -> tuple[Array, Array]:
    """Return checked (N, C) probabilities and (N,) integer labels of the same kind and device."""
    array = as_array(probabilities)
    if array.ndim == 1:
        raise ValueError(
            f"probabilities must have shape (samples, classes), got {tuple(array.shape)}: this metric needs the "
            "whole distribution, and a top-1 confidence alone does not determine it."
        )
    checked = check_probabilities(array)
    return checked, check_labels(labels, checked.shape[0], checked.shape[1], like=checked)


def check_confidence(confidence: ArrayLike, name: str = "confidence") -> Array:
    """Return a top-1 confidence as N floats in [0, 1]."""
    array = as_array(confidence)
    if array.ndim != 1 or array.shape[0] == 0:
        raise ValueError(f"{name} must have shape (samples,) with at least 1 sample, got {tuple(array.shape)}.")
    array = check_finite_floats(array, name)
    xp = namespace(array)
    low, high = float(xp.min(array)), float(xp.max(array))
    if low < -RANGE_TOLERANCE or high > 1 + RANGE_TOLERANCE:
        raise ValueError(
            f"{name} must lie in [0, 1], got values from {low:.6g} to {high:.6g}. "
            "Pass probabilities (0.97, not 97 and not a logit)."
        )
    return xp.clip(array, 0.0, 1.0)


def check_correct(correct: ArrayLike | None, confidence: Array) -> Array:
    """Return correctness as N booleans of the confidence's kind and device."""
    array = as_array(correct)
    if not _is_boolean(array):
        raise TypeError(
            f"beside a 1-d confidence, the second argument must be booleans (was the prediction correct?), got dtype "
            f"{array.dtype}. Write predicted == labels, or pass (samples, classes) probabilities with labels."
        )
    if tuple(array.shape) != tuple(confidence.shape):
        raise ValueError(
            f"correct must have the confidence's shape {tuple(confidence.shape)}, got {tuple(array.shape)}."
        )
    if is_torch(confidence):
        return namespace(confidence).asarray(array, device=confidence.device)
    return to_numpy(array)


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Raise a ValueError where an option is none of its choices."""
    if value not in choices:
        quoted = " or ".join(f'"{choice}"' for choice in choices)
        raise ValueError(f"{name} must be {quoted}, got {value!r}.")


def _is_boolean(array: Array) -> bool:
    return bool(namespace(array).isdtype(array.dtype, "bool"))


def wide(array: Array) -> Array:
    """Return the array in float64, for sums over many samples (float32 on MPS devices, which have no float64)."""
    xp = namespace(array)
    on_mps = is_torch(array) and array.device.type == "mps"
    return xp.astype(array, xp.float32 if on_mps else xp.float64)
