"""Banks of centres: made from a stream, from a sample of it or from other banks, and restored from files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Self

from densecal.arrays import Array, ArrayLike
from densecal.arrays.checks import check_features, check_finite_floats
from densecal.density.centres import merge_centres, rounded, spherical_kmeans
from densecal.density.sampling import FeatureSample
from densecal.density.training_set import DEFAULT_MEMORY_BUDGET, Centres, choose_centres


class CentreBank:
    """The methods of a bank that make and merge centres."""

    k: int | None
    backend: str
    memory_budget: int
    _features: dict[str, Array]
    _counts: dict[str, Array] | None

    @classmethod
    def from_batches(
        cls,
        batches: Iterable[Mapping[str, ArrayLike]],
        *,
        centres: Centres = "auto",
        seed: int = 0,
        memory_budget: int = DEFAULT_MEMORY_BUDGET,
    ) -> Self:
        """Make the centres of any number of training samples, in one pass and bounded memory.

        The centres are those of ``FeatureBank(features)`` for the concatenated batches: they depend on the seed but not
        on the size of the batches. Memory holds 64 samples per centre in float16.

        Examples
        --------
        >>> import numpy as np
        >>> from densecal import FeatureBank
        >>> rows = np.random.default_rng(0).normal(size=(2000, 8))
        >>> bank = FeatureBank.from_batches({"pool": rows[start : start + 256]} for start in range(0, 2000, 256))
        >>> bool(np.array_equal(bank["pool"], FeatureBank({"pool": rows})["pool"]))
        True
        """
        bank = cls._empty(memory_budget)
        bank._find_centres(batches, centres, seed)
        return bank

    @classmethod
    def from_sample(
        cls, sample: FeatureSample, *, centres: Centres = "auto", memory_budget: int = DEFAULT_MEMORY_BUDGET
    ) -> Self:
        """Make the centres of a sample of the training data."""
        bank = cls._empty(memory_budget)
        bank._take_centres(sample, centres)
        return bank

    @classmethod
    def _empty(cls, memory_budget: int = DEFAULT_MEMORY_BUDGET) -> Self:
        bank = object.__new__(cls)
        bank.k, bank.backend, bank.memory_budget = None, "auto", memory_budget
        return bank

    def _find_centres(self, batches: Iterable[Mapping[str, ArrayLike]], wanted: Centres, seed: int) -> None:
        sample = FeatureSample.for_centres(wanted, seed)
        for batch in batches:
            sample.add(batch)
        self._take_centres(sample, wanted)

    def _take_centres(self, sample: FeatureSample, wanted: Centres) -> None:
        number = choose_centres(sample.n_seen, wanted)
        self._features, self._counts = {}, {}
        for layer, rows in sample.rows().items():
            found, counts = spherical_kmeans(rows, number, memory_budget=self.memory_budget)
            self._features[layer] = rounded(found)
            self._counts[layer] = counts * (sample.n_seen / rows.shape[0])

    def merge(self, *others: Self) -> Self:
        """Return the bank of all their training data, in as many centres as the largest has. Fit calibrators again.

        Examples
        --------
        >>> import numpy as np
        >>> from densecal import FeatureBank
        >>> rows = np.random.default_rng(0).normal(size=(2000, 8))
        >>> FeatureBank({"pool": rows[:1000]}).merge(FeatureBank({"pool": rows[1000:]}))
        FeatureBank(100 centres, layers {'pool': 8})
        """
        banks = (self, *others)
        if any(bank._counts is None for bank in banks):
            raise ValueError("Only banks with centres can be merged. For rows, concatenate the features.")
        widths = [{layer: array.shape[1] for layer, array in bank._features.items()} for bank in banks]
        if any(one != widths[0] for one in widths):
            raise ValueError(f"The banks must have the same layers, got {widths}.")
        merged = self._empty(self.memory_budget)
        merged._features, merged._counts = {}, {}
        for layer in self._features:
            parts = [(bank._features[layer], bank._counts[layer]) for bank in banks if bank._counts is not None]
            found, merged._counts[layer] = merge_centres(*map(list, zip(*parts, strict=True)))
            merged._features[layer] = rounded(found)
        return merged

    def updated(self, features: Mapping[str, ArrayLike], *, seed: int = 0) -> Self:
        """Return the bank with new training samples added, in as many centres as before."""
        n_samples = len(next(iter(check_features(features).values())))
        n_centres = max(map(len, self._features.values()))
        return self.merge(self.from_batches([features], centres=min(n_centres, n_samples), seed=seed))

    @property
    def centres(self) -> int | None:
        """The number of centres of the layer with the most; None for a bank of rows."""
        return None if self._counts is None else max(map(len, self._features.values()))

    @classmethod
    def _restored(cls, centres: Mapping[str, Array], counts: Mapping[str, Array]) -> Self:
        bank = cls._empty()
        arrays: dict[str, Array] = {}
        for layer, array in centres.items():  # one by one: layers may have different numbers of centres
            arrays |= check_features({layer: array})
        bank._features = {layer: rounded(check_finite_floats(array, layer)) for layer, array in arrays.items()}
        bank._counts = {layer: check_finite_floats(counts[layer], layer) for layer in arrays}
        if any(bank._counts[layer].shape != array.shape[:1] for layer, array in arrays.items()):
            raise ValueError("The bank must have one count per centre.")
        return bank
