"""The inputs of a calibrator for one data set, and row-wise maps of them in blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

import numpy as np

from densecal.arrays import Array, ArrayLike, ArrayOrTensor, is_torch, row_blocks
from densecal.calibrators.solvers.rows import TORCH_BLOCK_BYTES, join_blocks
from densecal.outputs import Distances

Features: TypeAlias = Mapping[str, ArrayLike]

BLOCK_BYTES = 1 << 24
"""Probabilities are computed for so many bytes of logits at once."""


class Samples(NamedTuple):
    """The validated inputs of a calibrator for one data set."""

    logits: Array
    labels: Array | None
    features: Features | None
    distances: Array | Distances | None
    weights: Array | None = None


def by_blocks(apply: Callable[[Samples], Array], samples: Samples) -> ArrayOrTensor:
    """Apply a row-wise map to blocks of samples, so that temporary arrays take little memory."""
    logits, distances = samples.logits, samples.distances

    def part(rows: slice) -> Array:
        return apply(samples._replace(logits=logits[rows], distances=None if distances is None else distances[rows]))

    size = TORCH_BLOCK_BYTES if is_torch(logits) else BLOCK_BYTES
    with np.errstate(over="ignore"):  # the logits of masked classes may overflow to minus infinity
        joined: ArrayOrTensor = join_blocks(part, list(row_blocks(len(logits), logits.shape[1] * 8, size)))
    return joined
