"""What a measure is given, read once: probabilities and labels, or top-1 confidence and whether it was right."""

from __future__ import annotations

from densecal.arrays import Array, as_array, is_torch, namespace, to_numpy
from densecal.arrays.checks import RANGE_TOLERANCE, check_finite_floats, check_labels, check_probabilities


def read_top1(probabilities: object, labels: object) -> tuple[Array, Array]:
    """Return top-1 confidence (N,) and correctness (N,) from either form a top-1 measure takes.

    Parameters
    ----------
    probabilities
        (N, C) probabilities, or the (N,) top-1 confidence itself.
    labels
        Integer or one-hot labels, or, beside a 1-d confidence, N booleans: was the prediction correct?

    Examples
    --------
    >>> read_top1([[0.2, 0.8], [0.6, 0.4]], [1, 1])
    (array([0.8, 0.6]), array([ True, False]))
    >>> read_top1([0.8, 0.6], [True, False])
    (array([0.8, 0.6]), array([ True, False]))
    """
    first = as_array(probabilities)
    if first.ndim == 1:
        confidence = check_confidence(first)
        return confidence, check_correct(labels, confidence)
    if first.ndim == 2 and as_array(labels).ndim == 1 and _is_boolean(as_array(labels)):
        raise TypeError(
            "labels must be integers when probabilities are (samples, classes), got booleans. "
            "Booleans that say whether a prediction was correct belong beside the 1-d top-1 confidence."
        )
    checked, classes = read_distribution(first, labels)
    return top1_of(checked, classes)


def top1_of(probabilities: Array, labels: Array) -> tuple[Array, Array]:
    """Return the top-1 confidence and whether the first of the most probable classes is the label."""
    xp = namespace(probabilities)
    predicted = xp.argmax(probabilities, axis=1)
    return take_classes(probabilities, predicted), predicted == labels


def take_classes(probabilities: Array, classes: Array) -> Array:
    """Return each row's probability of the class named for it.

    Examples
    --------
    >>> import numpy as np
    >>> take_classes(np.array([[0.25, 0.75], [0.5, 0.5]]), np.array([1, 0]))
    array([0.75, 0.5 ])
    """
    rows = namespace(probabilities).arange(classes.shape[0], device=getattr(classes, "device", None))
    return probabilities[rows, classes]


def read_distribution(probabilities: object, labels: object) -> tuple[Array, Array]:
    """Return checked (N, C) probabilities and (N,) integer labels of the same kind and device.

    Examples
    --------
    >>> read_distribution([[0.2, 0.8]], [[0, 1]])
    (array([[0.2, 0.8]]), array([1]))
    """
    array = as_array(probabilities)
    if array.ndim == 1:
        raise ValueError(
            f"probabilities must have shape (samples, classes), got {tuple(array.shape)}: this measure needs the "
            "whole distribution, and a top-1 confidence alone does not determine it."
        )
    checked = check_probabilities(array)
    return checked, check_labels(labels, checked.shape[0], checked.shape[1], like=checked)


def check_confidence(confidence: object, name: str = "confidence") -> Array:
    """Return a top-1 confidence as N floats in [0, 1].

    Examples
    --------
    >>> check_confidence([0.5, 1])
    array([0.5, 1. ])
    """
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


def check_correct(correct: object, confidence: Array) -> Array:
    """Return, beside a confidence, N booleans that say whether the prediction was correct.

    Examples
    --------
    >>> import numpy as np
    >>> check_correct([True], np.array([0.9]))
    array([ True])
    """
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


def _is_boolean(array: Array) -> bool:
    return bool(namespace(array).isdtype(array.dtype, "bool"))


def wide(array: Array) -> Array:
    """Return the array in float64, for sums over many samples (float32 on Apple's devices, which have no more).

    Examples
    --------
    >>> import numpy as np
    >>> wide(np.array([True, False]))
    array([1., 0.])
    """
    xp = namespace(array)
    on_mps = is_torch(array) and array.device.type == "mps"
    return xp.astype(array, xp.float32 if on_mps else xp.float64)
