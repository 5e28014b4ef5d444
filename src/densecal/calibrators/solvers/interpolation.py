"""Piecewise linear maps of scores, for NumPy arrays and torch tensors."""

from __future__ import annotations

import numpy as np

from densecal.arrays import Array, is_torch, namespace

SPLITTER = float((1 << 19) + 1)
"""Veltkamp's constant: splitting a float64 with it keeps the leading 34 of its 53 bits."""


def round_scores(scores: Array) -> Array:
    """Round float64 scores to 34 bits, so that scores that differ only in the order of summation are equal.

    Otherwise a step of a map may lie between two scores that are equal except for rounding.
    """
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
