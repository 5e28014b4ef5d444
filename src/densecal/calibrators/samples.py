"""The inputs of a calibrator for one data set, and row-wise maps of them in blocks."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from densecal.arrays import Array, ArrayLike, ArrayOrTensor, is_torch, namespace, row_blocks, to_numpy
from densecal.arrays.checks import check_distances, check_logits
from densecal.outputs import Distances, Outputs

Features: TypeAlias = Mapping[str, ArrayLike]

BLOCK_BYTES, CACHED_BYTES, TORCH_BLOCK_BYTES = 1 << 24, 1 << 20, 1 << 28
"""Sizes of blocks of logits: for a call, for a method on the CPU (temporary arrays stay in the cache), for torch."""


class Samples(NamedTuple):
    """The validated inputs of a calibrator for one data set."""

    logits: Array
    labels: Array | None
    features: Features | None
    distances: Array | Distances | None
    weights: Array | None = None

    @classmethod
    def of(
        cls,
        logits: ArrayLike | Outputs,
        labels: ArrayLike | None,
        features: Features | None,
        distances: ArrayLike | Distances | None,
    ) -> Samples:
        """Return the samples of one data set, given as Outputs or as its parts."""
        if not isinstance(logits, Outputs):
            return cls(check_logits(logits), labels, features, distances)
        if labels is not None or features is not None or distances is not None:
            raise TypeError("Outputs include labels, features and distances. Do not pass them separately.")
        return cls(logits.checked_logits(), logits.labels, logits.features or None, logits.distances)

    def with_checked_distances(self) -> Samples:
        """Return the samples with valid distances, or without any; raise if there is not one row per sample."""
        distances, n_samples = self.distances, len(self.logits)
        if distances is None:
            return self
        if not isinstance(distances, Distances):
            return self._replace(distances=check_distances(distances, n_samples))
        if len(distances) != n_samples:
            raise ValueError(f"distances have {len(distances)} samples but logits have {n_samples}.")
        return self


def by_blocks(apply: Callable[[Samples], Array], samples: Samples) -> ArrayOrTensor:
    """Apply a row-wise map to blocks of samples, so that temporary arrays take little memory."""
    logits, distances = samples.logits, samples.distances

    def part(rows: slice) -> Array:
        return apply(samples._replace(logits=logits[rows], distances=None if distances is None else distances[rows]))

    size = TORCH_BLOCK_BYTES if is_torch(logits) else BLOCK_BYTES
    with np.errstate(over="ignore"):  # the logits of masked classes may overflow to minus infinity
        joined: ArrayOrTensor = join_blocks(part, list(row_blocks(len(logits), logits.shape[1] * 8, size)))
    return joined


def logit_blocks(logits: Array) -> Iterator[slice]:
    """Yield slices that split the logits into blocks with small temporary arrays."""
    block_bytes = TORCH_BLOCK_BYTES if is_torch(logits) else CACHED_BYTES
    return row_blocks(logits.shape[0], logits.shape[1] * 8, block_bytes)


def by_row_blocks(apply: Callable[[Array], Array], logits: Array) -> Array:
    """Apply a row-wise map block by block, to limit the size of temporary arrays."""
    return join_blocks(lambda rows: apply(logits[rows]), list(logit_blocks(logits)) or [slice(0, 0)])


def join_blocks(apply: Callable[[slice], Array], blocks: Sequence[slice]) -> Array:
    """Return the results for blocks of rows as one array."""
    first = apply(blocks[0])
    if len(blocks) == 1:
        return first
    if is_torch(first):
        return namespace(first).concat([first, *(apply(rows) for rows in blocks[1:])], axis=0)
    joined = np.empty((blocks[-1].stop, *first.shape[1:]), first.dtype)
    joined[blocks[0]] = first
    for rows in blocks[1:]:
        joined[rows] = apply(rows)
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
