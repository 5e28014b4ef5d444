"""Piecewise linear maps of scores, on NumPy arrays and torch tensors alike."""

from __future__ import annotations

import numpy as np

from densecal.arrays import Array, is_torch, namespace

SPLITTER = float((1 << 19) + 1)
"""Veltkamp's constant: splitting a float64 by it leaves the leading 34 of its 53 bits."""


def round_scores(scores: Array) -> Array:
    """Round float64 scores to 34 bits, so that scores which differ only by an order of summation are equal.

    Without it the steps of a map may fall between two scores that are the same number computed twice.
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
