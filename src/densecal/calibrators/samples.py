"""The inputs of a calibrator for one data set, and row-wise maps of them in blocks."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from densecal.arrays import Array, ArrayLike, ArrayOrTensor, is_torch, row_blocks, to_numpy
from densecal.calibrators.solvers.rows import TORCH_BLOCK_BYTES, join_blocks
from densecal.outputs import Distances, Outputs

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


def named_sets(shifted: Any) -> Mapping[str | int, Any]:
    """Return shifted data sets by their names, or by their positions if they have none."""
    if isinstance(shifted, Mapping):
        return shifted
    is_one = isinstance(shifted, Outputs) or (isinstance(shifted, tuple) and not isinstance(shifted[0], Outputs))
    return dict(enumerate([shifted] if is_one else shifted))


def data_hashes(samples: Samples, shifted: Any) -> dict[str, str]:
    """Return the SHA-256 of the logits (as float32) and labels of the data of a fit."""
    found = {"validation": data_hash([(samples.logits, samples.labels)])}
    if shifted is not None:
        sets = named_sets(shifted).values()
        pairs = ((one.logits, one.labels) if isinstance(one, Outputs) else one[:2] for one in sets)
        found["shifted"] = data_hash(pairs)
    return found


def data_hash(sets: Iterable[tuple[Any, Any]]) -> str:
    """Return the SHA-256 of the logits, as float32, and the labels of data sets, in order."""
    digest = hashlib.sha256()
    for logits, labels in sets:
        for rows in row_blocks(len(logits), 4 * len(logits[0])):
            digest.update(to_numpy(logits[rows]).astype("<f4").tobytes())
        digest.update(to_numpy(labels).astype("<i8").tobytes())
    return digest.hexdigest()
