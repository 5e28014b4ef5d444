"""Directions of features: rows divided by their Euclidean norm."""

from __future__ import annotations

from densecal.arrays import Array, namespace
from densecal.arrays.checks import check_finite_floats


def normalise(features: Array, name: str) -> Array:
    """Divide each row by its Euclidean norm, in float32. An all-zero row remains zero."""
    array = check_finite_floats(features, name)
    xp = namespace(array)
    # Scaling by the largest entry first prevents overflow and underflow of the squares.
    array = xp.astype(array, xp.float32)
    largest = xp.max(xp.abs(array), axis=1, keepdims=True) if array.shape[0] else array[:, :1]
    array = array / xp.where(largest > 0, largest, xp.ones_like(largest))
    norm = xp.sqrt(xp.sum(array * array, axis=1, keepdims=True))
    return array / xp.where(norm > 0, norm, xp.ones_like(norm))
