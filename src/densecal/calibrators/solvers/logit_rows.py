"""Operations on rows and scores shared by several methods: centring, ordering and interpolation."""

from __future__ import annotations

from typing import Any

import numpy as np

from densecal.arrays import Array, is_torch, namespace, take_classes, to_numpy
from densecal.calibrators.solvers.masks import without_masked_rows
from densecal.errors import warn_user
from densecal.io.atomic_files import listed

SPLITTER = float((1 << 19) + 1)
"""Veltkamp's constant: splitting a float64 with it keeps the leading 34 of its 53 bits."""


def centre_rows(logits: Array) -> Array:
    """Subtract the mean of each row, so that the result does not depend on a constant added to a row."""
    xp = namespace(logits)
    # Subtract the maximum first: a large common constant would make the mean inaccurate.
    shifted = logits - xp.max(logits, axis=1, keepdims=True)
    return shifted - xp.mean(shifted, axis=1, keepdims=True)


def for_fit(logits: Array, labels: Array, *more: Array) -> tuple[Array, ...]:
    """Return the samples, and further arrays with one row per sample, in a canonical order; on the CPU as NumPy arrays.

    A shuffled validation set gives the same folds and sums, and therefore the same calibrator. Samples of one class are
    adjacent. Samples with masked classes are left out.
    """
    if is_torch(logits) and _lies_on_cpu(logits):
        logits, labels = to_numpy(logits), to_numpy(labels)
    logits, labels, *kept = without_masked_rows(logits, labels, *more)
    xp = namespace(logits)
    shifted = logits - xp.max(logits, axis=1, keepdims=True)
    # Sums with unequal weights distinguish rows with the same numbers in a different order.
    weights = xp.linspace(1, 2, logits.shape[1], dtype=logits.dtype, **_device(logits))
    keys = [xp.sum(shifted * weights, axis=1), xp.sum(shifted, axis=1), take_classes(shifted, labels), labels]
    order = np.lexsort([to_numpy(key) for key in keys])
    index = xp.asarray(order, **_device(logits))
    return logits[index], labels[index], *(array[order] for array in kept)


def round_scores(scores: Array) -> Array:
    """Round float64 scores to 34 bits, so that no step of a map lies between scores that are equal up to rounding."""
    scaled = scores * SPLITTER
    return scaled - (scaled - scores)


def interpolate(x: Array, nodes: Array, values: Array) -> Array:
    """Evaluate the piecewise linear function through (nodes, values), constant beyond the first and the last node."""
    if not is_torch(x):
        return np.interp(x, nodes, values)
    xp = namespace(x)
    if nodes.shape[0] == 1:
        return xp.zeros_like(x) + values[0]
    right = xp.clip(xp.searchsorted(nodes, x, right=True), 1, nodes.shape[0] - 1)
    left = right - 1
    weight = xp.clip((x - nodes[left]) / (nodes[right] - nodes[left]), 0, 1)
    return values[left] + weight * (values[right] - values[left])


def warn_of_missing_classes(labels: Array, classes: int, consequence: str) -> None:
    """Warn if a class is missing from the labels of a class-wise method."""
    missing = [str(label) for label in np.setdiff1d(np.arange(classes), to_numpy(labels))]
    if missing:
        warn_user(
            f"{len(missing)} of {classes} classes are missing from the validation labels ({listed(missing)}); they "
            f"{consequence}. Use a validation set with all classes, or an accuracy-preserving method."
        )


def _device(array: Array) -> dict[str, Any]:
    return {"device": array.device} if is_torch(array) else {}


def _lies_on_cpu(tensor: Array) -> bool:
    return bool(tensor.device.type == "cpu")
