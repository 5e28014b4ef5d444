"""FeatureSample: a random sample of the features in a stream of training data."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from densecal.arrays import Array, ArrayLike, namespace, to_device_of
from densecal.arrays.checks import check_features, count_samples, unit_rows
from densecal.density.defaults import Centres, sample_size

SLACK = 1.5
"""A sample is cut to its size when it has grown by this factor."""


class FeatureSample:
    """A uniform random sample of the normalised features of a stream.

    Every row has an index in the stream and gets the random number at that index of the seed's sequence; the rows with
    the smallest random numbers are kept. The sample therefore depends on the seed and the indices of the rows, but not
    on the size or order of the batches, and the samples of several workers can be merged. Rows are kept in float16.
    """

    def __init__(self, size: int, seed: int = 0) -> None:
        self.size = size
        self.n_seen = 0
        self._seed = seed
        self._numbers: list[Any] = []
        self._parts: dict[str, list[Array]] = {}
        self._widths: dict[str, int] = {}
        self._below = np.inf

    @classmethod
    def for_centres(cls, centres: Centres, seed: int, n_samples: int | None = None) -> Self:
        """Return an empty sample that is large enough for k-means with this number of centres.

        If the whole stream has ``n_samples`` rows, a part keeps only rows with a random number below a bound: in a
        stream of this length, more than enough rows have one.
        """
        sample = cls(sample_size(centres), seed)
        if n_samples:
            sample._below = 2 * sample.size / n_samples
        return sample

    @classmethod
    def of(cls, batches: Iterable[Mapping[str, ArrayLike]], centres: Centres, seed: int) -> Self:
        """Return a sample of a stream that is large enough for k-means with this number of centres."""
        sample = cls.for_centres(centres, seed)
        for batch in batches:
            sample.add(batch)
        return sample

    def add(self, features: Mapping[str, ArrayLike], numbers: NDArray[np.integer[Any]] | None = None) -> None:
        """Add a batch of rows; ``numbers`` are their indices in the stream, by default those after the last batch."""
        arrays = check_features(features)
        n_rows = count_samples(arrays)
        self._check_widths({layer: int(array.shape[1]) for layer, array in arrays.items()})
        if numbers is not None and len(numbers) != n_rows:
            raise ValueError(f"numbers must have one number per row: got {len(numbers)} for {n_rows} rows.")
        drawn = self._draw(np.arange(self.n_seen, self.n_seen + n_rows) if numbers is None else numbers)
        self.n_seen += n_rows
        kept = np.flatnonzero(drawn < self._below)
        if not kept.size and self._parts:
            return
        self._numbers.append(drawn[kept])
        for layer, array in arrays.items():
            part = unit_rows(array if kept.size == n_rows else array[kept], layer)
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
        """Add the sample of other rows: with the same seed if rows have indices in the stream, else with another."""
        self._check_widths(other._widths)
        self.n_seen += other.n_seen
        self._numbers += other._numbers
        for layer, parts in other._parts.items():
            self._parts.setdefault(layer, []).extend(parts)
        self._cut()

    def _draw(self, numbers: NDArray[np.integer[Any]]) -> NDArray[np.float64]:
        """Return the random numbers at these places of the sequence, by one jump for each run of adjacent places."""
        drawn = np.empty(len(numbers))
        starts = np.flatnonzero(np.diff(numbers, prepend=numbers[:1] - 2) != 1)
        bits, place = np.random.PCG64(self._seed), 0
        generator = np.random.Generator(bits)
        for start, end in pairwise([*starts.tolist(), len(numbers)]):
            bits.advance(int(numbers[start]) - place)
            drawn[start:end] = generator.random(end - start)
            place = int(numbers[end - 1]) + 1
        return drawn

    def _cut(self) -> None:
        """Keep the rows with the smallest random numbers, in their order."""
        numbers = np.concatenate(self._numbers)
        order = np.argsort(numbers, kind="stable")[: self.size]
        self._numbers = [numbers[order]]
        if len(order) == self.size:
            self._below = float(numbers[order[-1]])
        for layer, parts in self._parts.items():
            joined = namespace(parts[0]).concat(parts) if len(parts) > 1 else parts[0]
            self._parts[layer] = [joined[to_device_of(order, joined)]]

    def _check_widths(self, widths: Mapping[str, int]) -> None:
        self._widths = self._widths or dict(widths)
        if widths and widths != self._widths:
            expected = f"the first has {self._widths}"
            raise ValueError(f"Every batch must have the same layers and widths: {expected}, got {widths}.")
