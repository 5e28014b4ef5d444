"""A random sample of the features of a stream, in bounded memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np

from densecal.arrays import Array, ArrayLike, is_torch, namespace
from densecal.arrays.checks import check_features
from densecal.density.defaults import Centres, sample_size
from densecal.density.normalisation import normalise

SLACK = 1.5
"""The sample is cut to its size when it has grown by this factor."""


class FeatureSample:
    """A uniform random sample of the normalised features of a stream.

    Every row draws a random number, and the rows with the smallest numbers are kept. The sample therefore depends on
    the seed and on the order of the rows, but not on the size of the batches, and two samples can be merged. Rows are
    kept in float16.
    """

    def __init__(self, size: int, seed: int = 0) -> None:
        self.size = size
        self.n_seen = 0
        self._draw = np.random.default_rng(seed)
        self._numbers: list[Any] = []
        self._parts: dict[str, list[Array]] = {}
        self._below = np.inf

    @classmethod
    def for_centres(cls, centres: Centres, seed: int) -> Self:
        """Return an empty sample that is large enough for k-means with so many centres."""
        return cls(sample_size(centres), seed)

    def add(self, features: Mapping[str, ArrayLike]) -> None:
        """Add a batch of rows."""
        arrays = check_features(features)
        if not arrays:
            raise ValueError("features must have at least one layer, got none.")
        n_rows = int(next(iter(arrays.values())).shape[0])
        if self._parts:
            self._check_layers(arrays)
        self.n_seen += n_rows
        numbers = self._draw.random(n_rows)
        kept = np.flatnonzero(numbers < self._below)
        if not kept.size and self._parts:
            return
        self._numbers.append(numbers[kept])
        for layer, array in arrays.items():
            part = normalise(array if kept.size == n_rows else array[kept], f"features[{layer!r}]")
            xp = namespace(part)
            self._parts.setdefault(layer, []).append(xp.astype(part, xp.float16))
        if sum(map(len, self._numbers)) > SLACK * self.size:
            self._cut()

    def rows(self) -> dict[str, Array]:
        """Return the sampled unit vectors of each layer in a random order, in float16."""
        if not self.n_seen:
            raise ValueError("The training data have no samples.")
        self._cut()
        return {layer: parts[0] for layer, parts in self._parts.items()}

    def merge(self, other: FeatureSample) -> None:
        """Add the sample of another stream of the same layers. Give every stream a seed of its own."""
        if self._parts and other._parts:
            self._check_layers({layer: parts[0] for layer, parts in other._parts.items()})
        self.n_seen += other.n_seen
        self._numbers += other._numbers
        for layer, parts in other._parts.items():
            self._parts.setdefault(layer, []).extend(parts)
        self._cut()

    def _cut(self) -> None:
        """Keep the rows with the smallest numbers, in their order."""
        numbers = np.concatenate(self._numbers)
        order = np.argsort(numbers, kind="stable")[: self.size]
        self._numbers = [numbers[order]]
        if len(order) == self.size:
            self._below = float(numbers[order[-1]])
        for layer, parts in self._parts.items():
            joined = namespace(parts[0]).concat(parts) if len(parts) > 1 else parts[0]
            self._parts[layer] = [joined[_as_index(order, joined)]]

    def _check_layers(self, arrays: Mapping[str, Array]) -> None:
        before, now = (
            {layer: int(array.shape[1]) for layer, array in some.items()}
            for some in ({layer: parts[0] for layer, parts in self._parts.items()}, arrays)
        )
        if before != now:
            raise ValueError(f"Every batch must have the same layers and widths: the first has {before}, got {now}.")


def _as_index(order: Any, array: Array) -> Any:
    if not is_torch(array):
        return order
    import torch

    return torch.as_tensor(order, device=array.device)
