"""FeatureBank: the training features of each layer, and the distances of new inputs from them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Self

import numpy as np

from densecal.arrays import Array, ArrayLike, ArrayOrTensor, asarray_like, namespace, to_numpy
from densecal.arrays.checks import check_features, check_finite_floats
from densecal.density.centres import merge_centres, nearest_distances, rounded, spherical_kmeans
from densecal.density.defaults import DEFAULT_MEMORY_BUDGET, BankSize, Centres, choose_centres
from densecal.density.row_search import BACKENDS, Backend, draw_rows, kth_row_distances, normalise, unit_vectors
from densecal.density.sampling import FeatureSample
from densecal.io.artefacts import BankState


class FeatureBank:
    """What is kept of the training features of each layer, to measure how far new inputs are from them.

    By default the bank keeps a few hundred centres per layer, found by spherical k-means, and the distance in layer l
    is s_l(x) = ||z - c||, where z is the feature of the input divided by its Euclidean norm and c the nearest centre.
    With ``k`` it keeps the training features themselves, as in the paper, and c is the k-th nearest of them. An
    all-zero feature has no direction. It is treated as orthogonal to all others, so its distance is sqrt(2).

    Parameters
    ----------
    features : mapping of str to array of shape (n_samples, width)
        Training features of each layer, averaged over positions or tokens.
    k : int, optional
        Keep rows and measure the distance to the k-th nearest. The paper uses 50 (CIFAR-10), 200 (CIFAR-100) and, for
        1 % of ImageNet, 10.
    centres : int or "auto", optional
        The number of centres per layer; "auto", the default without ``k``, is 500, or a tenth of the training samples
        where there are fewer than 5,000. k-means uses a random sample of 64 training samples per centre.
    bank_size : int, float or "auto", optional
        With ``k``: the number (int) or fraction (float) of samples to keep, drawn with ``seed``; all by default.
    seed : int
        Seed of k-means, or of the rows that are drawn.
    backend : {"auto", "numpy", "faiss", "torch"}
        How rows are searched. ``auto`` searches torch tensors with torch on their device, and NumPy arrays with faiss
        if it is installed, else with NumPy.
    memory_budget : int
        Bytes that a search may use in addition to the features, for any number of queries.

    Examples
    --------
    >>> train = {"pool": np.random.default_rng(0).normal(size=(2000, 8))}
    >>> bank = FeatureBank(train)
    >>> bank
    FeatureBank(200 centres, layers {'pool': 8})
    >>> bank.distances({"pool": train["pool"][:3]}).shape
    (3, 1)
    >>> rows = FeatureBank({"pool": [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]}, k=1)
    >>> rows.distances({"pool": [[2.0, 0.0], [1.0, 3.0]]}).round(3)
    array([[0.  ],
           [0.32]], dtype=float32)
    """

    def __init__(
        self,
        features: Mapping[str, ArrayLike],
        k: int | None = None,
        *,
        centres: Centres | None = None,
        bank_size: BankSize = None,
        seed: int = 0,
        backend: Backend = "auto",
        memory_budget: int = DEFAULT_MEMORY_BUDGET,
    ) -> None:
        if backend not in BACKENDS:
            raise ValueError(f"backend must be one of {BACKENDS}, got {backend!r}.")
        if k is not None and centres is not None:
            raise ValueError(f"k keeps rows and centres replaces them: pass one of them, got {k=} and {centres=}.")
        if k is None and bank_size is not None:
            raise ValueError(f"bank_size counts rows, which a bank keeps with k: pass k too, got {bank_size=}.")
        self.k = k
        self.backend = backend
        self.memory_budget = memory_budget
        self._counts: dict[str, Array] | None = None
        if k is None:
            wanted = "auto" if centres is None else centres
            sample = FeatureSample.for_centres(wanted, seed)
            sample.add(features)
            self._take_centres(sample, wanted)
            return
        arrays = check_features(features)
        if not arrays:
            raise ValueError("features must have at least one layer, got none.")
        rows = draw_rows(next(iter(arrays.values())).shape[0], bank_size, seed, k)
        self._features = {
            layer: normalise(array if rows is None else array[rows], f"features[{layer!r}]")
            for layer, array in arrays.items()
        }

    @classmethod
    def from_batches(
        cls,
        batches: Iterable[Mapping[str, ArrayLike]],
        *,
        centres: Centres = "auto",
        seed: int = 0,
        memory_budget: int = DEFAULT_MEMORY_BUDGET,
    ) -> FeatureBank:
        """Make the centres of any number of training samples, in one pass and bounded memory.

        The centres are those of ``FeatureBank(features)`` for the concatenated batches: they depend on the seed but not
        on the size of the batches. Memory holds 64 samples per centre in float16.

        Examples
        --------
        >>> rows = np.random.default_rng(0).normal(size=(2000, 8))
        >>> bank = FeatureBank.from_batches({"pool": rows[start : start + 256]} for start in range(0, 2000, 256))
        >>> bool(np.array_equal(bank["pool"], FeatureBank({"pool": rows})["pool"]))
        True
        """
        sample = FeatureSample.for_centres(centres, seed)
        for batch in batches:
            sample.add(batch)
        return cls.from_sample(sample, centres=centres, memory_budget=memory_budget)

    @classmethod
    def from_sample(
        cls, sample: FeatureSample, *, centres: Centres = "auto", memory_budget: int = DEFAULT_MEMORY_BUDGET
    ) -> FeatureBank:
        """Make the centres of a sample of the training data."""
        bank = cls._empty(memory_budget)
        bank._take_centres(sample, centres)
        return bank

    @classmethod
    def _empty(cls, memory_budget: int = DEFAULT_MEMORY_BUDGET) -> FeatureBank:
        bank = object.__new__(cls)
        bank.k, bank.backend, bank.memory_budget = None, "auto", memory_budget
        return bank

    def _take_centres(self, sample: FeatureSample, wanted: Centres) -> None:
        number = choose_centres(sample.n_seen, wanted)
        self._features, self._counts = {}, {}
        for layer, rows in sample.rows().items():
            found, counts = spherical_kmeans(rows, number, memory_budget=self.memory_budget)
            self._features[layer] = rounded(found)
            self._counts[layer] = counts * (sample.n_seen / rows.shape[0])

    def merge(self, *others: FeatureBank) -> FeatureBank:
        """Return the bank of all their training data, in as many centres as the largest has. Fit calibrators again.

        Examples
        --------
        >>> rows = np.random.default_rng(0).normal(size=(2000, 8))
        >>> FeatureBank({"pool": rows[:1000]}).merge(FeatureBank({"pool": rows[1000:]}))
        FeatureBank(100 centres, layers {'pool': 8})
        """
        banks = (self, *others)
        if any(bank._counts is None for bank in banks):
            raise ValueError("Only banks with centres can be merged. For rows, concatenate the features.")
        if any(bank.widths != self.widths for bank in others):
            raise ValueError(f"The banks must have the same layers, got {[bank.widths for bank in banks]}.")
        merged = self._empty(self.memory_budget)
        merged._features, merged._counts = {}, {}
        for layer in self.layers:
            parts = [(bank._features[layer], bank._counts[layer]) for bank in banks if bank._counts is not None]
            found, merged._counts[layer] = merge_centres(*map(list, zip(*parts, strict=True)))
            merged._features[layer] = rounded(found)
        return merged

    def updated(self, features: Mapping[str, ArrayLike], *, seed: int = 0) -> FeatureBank:
        """Return the bank with new training samples added, in as many centres as before."""
        n_samples = len(next(iter(check_features(features).values())))
        return self.merge(FeatureBank(features, centres=min(len(self), n_samples), seed=seed))

    @property
    def centres(self) -> int | None:
        """The number of centres of the layer with the most; None for a bank of rows."""
        return None if self._counts is None else len(self)

    @property
    def layers(self) -> tuple[str, ...]:
        """The names of the layers, in the order of the columns of the distances."""
        return tuple(self._features)

    @property
    def widths(self) -> dict[str, int]:
        """The number of features of each layer."""
        return {layer: int(array.shape[1]) for layer, array in self._features.items()}

    def __len__(self) -> int:
        return max(int(array.shape[0]) for array in self._features.values())

    def __repr__(self) -> str:
        return f"FeatureBank({self.describe()}, layers {self.widths})"

    def describe(self) -> str:
        """Return what the bank keeps as text."""
        return f"{len(self):,} centres" if self.k is None else f"{len(self):,} training samples, k = {self.k}"

    def __getitem__(self, layer: str) -> ArrayOrTensor:
        """Return the centres or normalised rows of a layer, of shape (number, width)."""
        features: ArrayOrTensor = self._features[layer]
        return features

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        # A bank is immutable, and a copy by scikit-learn's clone would take hundreds of megabytes.
        return self

    def state(self) -> BankState:
        """Return the state that is saved in a file."""
        return BankState(dict(self._features), self.k, None if self._counts is None else dict(self._counts))

    @classmethod
    def from_state(cls, state: BankState) -> FeatureBank:
        """Restore a bank from its state."""
        if state.counts is None:
            return cls(state.features, k=state.k)
        bank = cls._empty()
        arrays: dict[str, Array] = {}
        for layer, centres in state.features.items():  # one by one: layers may have different numbers of centres
            arrays |= check_features({layer: centres})
        bank._features = {layer: rounded(check_finite_floats(array, layer)) for layer, array in arrays.items()}
        bank._counts = {layer: check_finite_floats(state.counts[layer], layer) for layer in arrays}
        if any(bank._counts[layer].shape != array.shape[:1] for layer, array in arrays.items()):
            raise ValueError("The bank must have one count per centre.")
        return bank

    def select(self, layers: Iterable[str]) -> FeatureBank:
        """Return a bank of some of the layers that shares their memory."""
        layers = list(layers)
        unknown = [layer for layer in layers if layer not in self._features]
        if unknown or not layers:
            raise ValueError(f"The bank has the layers {list(self._features)}, got {layers}.")
        part = object.__new__(FeatureBank)
        part.__dict__.update(self.__dict__)
        part.__dict__.pop("fingerprint", None)
        part._features = {layer: self._features[layer] for layer in layers}
        part._counts = None if self._counts is None else {layer: self._counts[layer] for layer in layers}
        return part

    @cached_property
    def fingerprint(self) -> str:
        """A short hash of the bank's layers and of a sample of its rows, which tells one bank from another."""
        digest = hashlib.sha256()
        for layer, array in self._features.items():
            rows = to_numpy(array[:: max(1, len(self) // 64)]).astype(np.float32)
            digest.update(f"{layer}:{tuple(array.shape)}".encode() + rows.tobytes())
        return digest.hexdigest()[:16]

    def distances(
        self,
        features: Mapping[str, ArrayLike],
        *,
        k: int | Sequence[int] | None = None,
        exclude_self: bool = False,
    ) -> ArrayOrTensor:
        """Return the distance of each input to its nearest centre, or to its k-th nearest row, in each layer.

        Parameters
        ----------
        features : mapping of str to array of shape (n_samples, width)
            The features of the inputs. Layers that are not in the bank are ignored.
        k : int or sequence of int, optional
            For a bank of rows: overrides the bank's k. Several values share one search.
        exclude_self : bool, default False
            For a bank of rows: whether the inputs are in the bank, so that an input is not its own neighbour.

        Returns
        -------
        array of shape (n_samples, n_layers), or (n_samples, n_layers, len(k)) for a sequence of k
        """
        queries = unit_vectors(features, self.widths)
        if self.k is None:
            if k is not None or exclude_self:
                raise ValueError(
                    "This bank has centres, which have no k-th neighbour and are no samples: k and exclude_self need "
                    "rows, FeatureBank(features, k=...)."
                )
            columns = [
                nearest_distances(unit, asarray_like(self._features[layer], unit), self.memory_budget)
                for layer, unit in queries.items()
            ]
            found: ArrayOrTensor = namespace(columns[0]).stack(columns, axis=1)
            return found
        return kth_row_distances(
            queries,
            self._features,
            self.k if k is None else k,
            backend=self.backend,
            memory_budget=self.memory_budget,
            exclude_self=exclude_self,
        )
