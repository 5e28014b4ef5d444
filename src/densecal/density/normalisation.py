"""Directions of features: rows divided by their Euclidean norm."""

from __future__ import annotations

from collections.abc import Mapping

from densecal.arrays import Array, ArrayLike, namespace
from densecal.arrays.checks import check_features, check_finite_floats


def normalise(features: Array, name: str) -> Array:
    """Divide each row by its Euclidean norm, in float32. An all-zero row remains zero."""
    array = check_finite_floats(features, name)
    xp = namespace(array)
    # Scaling by the largest entry first prevents overflow and underflow, of the squares and of float64 in float32.
    largest = xp.max(xp.abs(array), axis=1, keepdims=True) if array.shape[0] else array[:, :1]
    array = xp.astype(array / xp.where(largest > 0, largest, xp.ones_like(largest)), xp.float32)
    norm = xp.sqrt(xp.sum(array * array, axis=1, keepdims=True))
    return array / xp.where(norm > 0, norm, xp.ones_like(norm))


def unit_vectors(features: Mapping[str, ArrayLike], widths: Mapping[str, int]) -> dict[str, Array]:
    """Return the normalised features of some layers of the given widths. Other layers are ignored."""
    given = check_features(features)
    missing = [layer for layer in widths if layer not in given]
    if missing:
        raise ValueError(
            f"features lack the layers {missing} of the bank, got {sorted(given)}. Extract the same layers for every "
            "data set."
        )
    for layer, width in widths.items():
        if given[layer].shape[1] != width:
            raise ValueError(
                f"features[{layer!r}] have width {given[layer].shape[1]}, but the bank has width {width}. They come "
                "from another layer or another classifier."
            )
    return {layer: normalise(given[layer], f"features[{layer!r}]") for layer in widths}
