"""Inputs and defaults of the metrics: probabilities and labels, or top-1 confidence and correctness."""

from __future__ import annotations

from collections.abc import Sequence

from densecal.arrays import Array, ArrayLike, as_array, is_torch, namespace, take_classes, to_numpy
from densecal.arrays.checks import RANGE_TOLERANCE, check_finite_floats, check_labels, check_probabilities

N_BINS = 15
"""Default number of bins."""
N_RESAMPLES = 300
"""Default number of bootstrap resamples."""
LEVEL = 0.95
"""Default coverage of bootstrap intervals."""


def read_top1(
    probabilities: ArrayLike, labels: ArrayLike | None, confidence: ArrayLike | None = None
) -> tuple[Array, Array]:
    """Return top-1 confidence and correctness from (probabilities, labels) or (confidence, correct)."""
    first = as_array(probabilities)
    if first.ndim == 1:
        if confidence is not None:
            raise ValueError("confidence must be None if probabilities is a 1-d top-1 confidence.")
        score = check_confidence(first)
        return score, check_correct(labels, score)
    if first.ndim == 2 and as_array(labels).ndim == 1 and _is_boolean(as_array(labels)):
        raise TypeError(
            "labels must be integers for probabilities of shape (n_samples, n_classes), got booleans. To pass whether "
            "each prediction was correct, pass the top-1 confidence of shape (n_samples,) instead of probabilities."
        )
    return top1_of(*read_distribution(first, labels))


def top1_of(probabilities: Array, labels: Array, confidence: ArrayLike | None = None) -> tuple[Array, Array]:
    """Return the given or the top-1 confidence, and whether the predicted class (the first in a tie) is the label."""
    predicted = namespace(probabilities).argmax(probabilities, axis=1)
    if confidence is None:
        return take_classes(probabilities, predicted), predicted == labels
    score = check_confidence(confidence)
    return score, check_correct(predicted == labels, score)


def read_distribution(probabilities: ArrayLike, labels: ArrayLike | None) -> tuple[Array, Array]:
    """Return validated probabilities and integer labels in the same library and on the same device."""
    array = as_array(probabilities)
    if array.ndim == 1:
        raise ValueError(
            f"probabilities must have shape (n_samples, n_classes), got {tuple(array.shape)}: this metric needs the "
            "whole distribution, not only the top-1 confidence."
        )
    checked = check_probabilities(array)
    return checked, check_labels(labels, checked.shape[0], checked.shape[1], like=checked)


def check_confidence(confidence: ArrayLike, name: str = "confidence") -> Array:
    """Return a top-1 confidence as floats in [0, 1], of shape (n_samples,)."""
    array = as_array(confidence)
    if array.ndim != 1 or array.shape[0] == 0:
        raise ValueError(f"{name} must have shape (n_samples,) with at least 1 sample, got {tuple(array.shape)}.")
    array = check_finite_floats(array, name)
    xp = namespace(array)
    low, high = float(xp.min(array)), float(xp.max(array))
    if low < -RANGE_TOLERANCE or high > 1 + RANGE_TOLERANCE:
        raise ValueError(
            f"{name} must lie in [0, 1], got values from {low:.6g} to {high:.6g}. "
            "Pass probabilities, not percentages or logits."
        )
    return xp.clip(array, 0.0, 1.0)


def check_correct(correct: ArrayLike | None, confidence: Array) -> Array:
    """Return correctness as booleans in the library and on the device of the confidence."""
    array = as_array(correct)
    if not _is_boolean(array):
        raise TypeError(
            f"with a 1-d confidence, the second argument must be booleans (predicted == labels), got dtype "
            f"{array.dtype}. To pass labels, pass probabilities of shape (n_samples, n_classes)."
        )
    if tuple(array.shape) != tuple(confidence.shape):
        raise ValueError(
            f"correct must have the shape of the confidence, {tuple(confidence.shape)}, got {tuple(array.shape)}."
        )
    if is_torch(confidence):
        return namespace(confidence).asarray(array, device=confidence.device)
    return to_numpy(array)


def check_choice(name: str, value: str, choices: Sequence[str]) -> None:
    """Raise a ValueError if an option is not one of its choices."""
    if value not in choices:
        quoted = " or ".join(f'"{choice}"' for choice in choices)
        raise ValueError(f"{name} must be {quoted}, got {value!r}.")


def _is_boolean(array: Array) -> bool:
    return bool(namespace(array).isdtype(array.dtype, "bool"))


def wide(array: Array) -> Array:
    """Return the array in float64 for sums over many samples, or in float32 on MPS, which lacks float64."""
    xp = namespace(array)
    on_mps = is_torch(array) and array.device.type == "mps"
    return xp.astype(array, xp.float32 if on_mps else xp.float64)
