"""The training set of a bank: the number of centres or samples, k, and a random sample of a stream."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from densecal.arrays import Array, ArrayLike, namespace, to_device_of
from densecal.arrays.checks import check_features, unit_rows

DEFAULT_MEMORY_BUDGET = 256 << 20
"""Bytes that a search may use in addition to the features."""
BankSize = int | float | Literal["auto"] | None
"""A number of samples (int), a fraction of them (float), "auto", or None for all."""
Centres = int | Literal["auto"]
"""A number of centres per layer, or "auto"."""

MAX_CENTRES = 500
"""What "auto" uses for enough training samples. ``reproduction/studies/centres.py`` compares other numbers."""
SAMPLES_PER_CENTRE = 64
"""k-means uses a random sample of this many training samples per centre: more do not improve the centres."""
SLACK = 1.5
"""A sample is cut to its size when it has grown by this factor."""
_FEWEST_SAMPLES_PER_CENTRE = 10
_PAPER_SAMPLES = 45_000
_WHOLE_SET = 50_000
_SMALLEST_SHARE = 12_500
_FEW_CLASSES = 50
_SMALLEST_K = 10


def choose_centres(n_samples: int, centres: Centres) -> int:
    """Return the number of centres for a number of training samples.

    "auto" is 500, or a tenth of the samples where there are fewer than 5,000, but at least 10.
    """
    if centres == "auto":
        return min(MAX_CENTRES, max(_FEWEST_SAMPLES_PER_CENTRE, n_samples // _FEWEST_SAMPLES_PER_CENTRE), n_samples)
    if isinstance(centres, bool) or not isinstance(centres, (int, np.integer)) or centres < 1:
        raise ValueError(f"centres must be 'auto' or an integer of at least 1, got {centres!r}.")
    if centres > n_samples:
        raise ValueError(f"centres must be at most {n_samples}, the number of training samples, got {centres}.")
    return int(centres)


def sample_size(centres: Centres) -> int:
    """Return how many training samples k-means uses for a number of centres."""
    return SAMPLES_PER_CENTRE * (MAX_CENTRES if centres == "auto" else max(1, int(centres)))


def choose_k(n_samples: int, n_classes: int) -> int:
    """Return a default k for a bank of ``n_samples`` samples of ``n_classes`` classes.

    The paper uses the 50th of 45,000 (10 classes), the 200th of 45,000 (100 classes) and the 10th of 12,811 (1,000
    classes). In between, k is proportional to the size of the bank, at most 80 % of the samples per class, so that all
    neighbours can belong to one class, and at least 10.
    """
    largest = 50 if n_classes < _FEW_CLASSES else 200
    in_proportion = largest * min(n_samples, _PAPER_SAMPLES) / _PAPER_SAMPLES
    k = max(_SMALLEST_K, int(min(in_proportion, 0.8 * n_samples / n_classes)))
    return min(k, n_samples)


def choose_bank_size(available: int, bank_size: BankSize) -> int:
    """Return how many training samples a bank keeps. "auto" is all up to 50,000, else 1 % but at least 12,500."""
    if bank_size is None:
        return available
    if bank_size == "auto":
        return available if available <= _WHOLE_SET else max(_SMALLEST_SHARE, available // 100)
    if isinstance(bank_size, bool) or not isinstance(bank_size, (int, float, np.integer)):
        raise TypeError(
            f"bank_size must be 'auto', a number of samples, a fraction or None for all, got {bank_size!r}."
        )
    if isinstance(bank_size, float) and not 0 < bank_size <= 1:
        raise ValueError(f"bank_size as a fraction must lie in (0, 1], got {bank_size}.")
    size = max(1, round(available * bank_size)) if isinstance(bank_size, float) else int(bank_size)
    if not 1 <= size <= available:
        raise ValueError(f"bank_size must lie in 1 ... {available}, the number of training samples, got {bank_size!r}.")
    return size


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

    def add(self, features: Mapping[str, ArrayLike], numbers: NDArray[np.integer[Any]] | None = None) -> None:
        """Add a batch of rows; ``numbers`` are their indices in the stream, by default those after the last batch."""
        arrays = check_features(features)
        if not arrays:
            raise ValueError("features must have at least one layer, got none.")
        n_rows = int(next(iter(arrays.values())).shape[0])
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
