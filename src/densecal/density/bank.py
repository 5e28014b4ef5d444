"""FeatureBank: the training features of each layer, and the distances of new inputs from them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from functools import cached_property
from typing import Self

import numpy as np

from densecal.arrays import Array, ArrayLike, ArrayOrTensor, namespace, random_rows, row_blocks, to_numpy
from densecal.arrays.checks import check_choice, check_features, check_finite_floats, count_samples, unit_rows
from densecal.density.centres import find_centres, merge_centres, nearest_distances, rounded
from densecal.density.defaults import DEFAULT_MEMORY_BUDGET, BankSize, Centres, choose_bank_size
from densecal.density.sample import FeatureSample
from densecal.density.search import Backend, check_k, search
from densecal.display import counted
from densecal.io.artefacts import BankState

SELF_DISTANCE = 2e-3
"""With ``exclude_self``, a first neighbour nearer than this counts as the query itself."""


class FeatureBank:
    """Bank of training features, which measures how far new inputs lie from the training data in each layer.

    By default the bank keeps a few hundred centres per layer, found by spherical k-means. The distance in layer l is
    s_l(x) = ||z - c||, where z is the feature of the input divided by its Euclidean norm and c the nearest centre. With
    ``k`` the bank keeps rows, the training features themselves, as in the paper, and c is the k-th nearest of them. An
    all-zero feature has no direction and is treated as orthogonal to all others: its distance is sqrt(2).

    Parameters
    ----------
    features : mapping of str to array of shape (n_samples, width)
        Training features of each layer, averaged over positions or tokens.
    k : int, optional
        Keep rows and measure the distance to the k-th nearest. The paper uses 50 for CIFAR-10, 200 for CIFAR-100 and 10
        for ImageNet, of which it keeps 1 %.
    centres : int or "auto", optional
        The number of centres per layer; "auto", the default without ``k``, is 500, or a tenth of the training samples
        if there are fewer than 5,000. k-means uses a random sample of 64 training samples per centre.
    bank_size : int, float or "auto", optional
        With ``k``: the number (int) or fraction (float) of samples to keep, drawn with ``seed``; all by default.
    seed : int
        Seed of k-means, or of the rows that are drawn.
    backend : {"auto", "numpy", "faiss", "torch"}
        The library that searches rows. ``"auto"`` searches tensors with torch on their device, and NumPy arrays with
        faiss if it is installed, otherwise with NumPy.
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
        check_choice("backend", backend, Backend)
        if k is not None and centres is not None:
            raise ValueError(f"k (rows) and centres exclude each other: pass one of them, got {k=} and {centres=}.")
        if k is None and bank_size is not None:
            raise ValueError(f"bank_size counts rows, which a bank keeps with k: pass k too, got {bank_size=}.")
        self.k, self.backend, self.memory_budget = k, backend, memory_budget
        self._counts: dict[str, Array] = {}
        if k is None:
            wanted: Centres = "auto" if centres is None else centres
            sample = FeatureSample.of([features], wanted, seed)
            self._features, self._counts = find_centres(sample, wanted, memory_budget)
            return
        arrays = check_features(features)
        available = count_samples(arrays)
        check_k(k, size := choose_bank_size(available, bank_size))
        rows = random_rows(available, size, seed)
        self._features = {
            layer: unit_rows(array if rows is None else array[rows], layer) for layer, array in arrays.items()
        }

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
        >>> rows = np.random.default_rng(0).normal(size=(2000, 8))
        >>> bank = FeatureBank.from_batches({"pool": rows[start : start + 256]} for start in range(0, 2000, 256))
        >>> bool(np.array_equal(bank["pool"], FeatureBank({"pool": rows})["pool"]))
        True
        """
        return cls.from_sample(FeatureSample.of(batches, centres, seed), centres=centres, memory_budget=memory_budget)

    @classmethod
    def from_sample(
        cls, sample: FeatureSample, *, centres: Centres = "auto", memory_budget: int = DEFAULT_MEMORY_BUDGET
    ) -> Self:
        """Make the centres of a sample of the training data."""
        return cls._of(*find_centres(sample, centres, memory_budget), memory_budget)

    @classmethod
    def _of(cls, centres: dict[str, Array], counts: dict[str, Array], memory_budget: int) -> Self:
        bank = object.__new__(cls)
        bank.k, bank.backend, bank.memory_budget = None, "auto", memory_budget
        bank._features, bank._counts = centres, counts
        return bank

    def merge(self, *others: Self) -> Self:
        """Return a bank of the training data of several banks, with as many centres as the largest. Refit calibrators.

        Examples
        --------
        >>> rows = np.random.default_rng(0).normal(size=(2000, 8))
        >>> FeatureBank({"pool": rows[:1000]}).merge(FeatureBank({"pool": rows[1000:]}))
        FeatureBank(100 centres, layers {'pool': 8})
        """
        banks = (self, *others)
        if any(bank.k is not None for bank in banks):
            raise ValueError("Only banks with centres can be merged. For rows, concatenate the features.")
        if any(bank.widths != self.widths for bank in banks):
            raise ValueError(f"The banks must have the same layers, got {[bank.widths for bank in banks]}.")
        found, counts = {}, {}
        for layer in self._features:
            merged, counts[layer] = merge_centres(
                [bank._features[layer] for bank in banks], [bank._counts[layer] for bank in banks]
            )
            found[layer] = rounded(merged)
        return self._of(found, counts, self.memory_budget)

    def updated(self, features: Mapping[str, ArrayLike], *, seed: int = 0) -> Self:
        """Return the bank with new training samples added and the same number of centres. Refit calibrators."""
        n_centres = min(len(self), count_samples(check_features(features)))
        return self.merge(self.from_batches([features], centres=n_centres, seed=seed))

    @property
    def layers(self) -> tuple[str, ...]:
        """The names of the layers, in the order of the columns of the distances."""
        return tuple(self._features)

    @property
    def widths(self) -> dict[str, int]:
        """The number of features of each layer."""
        return {layer: int(array.shape[1]) for layer, array in self._features.items()}

    @property
    def centres(self) -> int | None:
        """The largest number of centres of a layer; None for a bank of rows."""
        return len(self) if self.k is None else None

    def __len__(self) -> int:
        return max(int(array.shape[0]) for array in self._features.values())

    def __repr__(self) -> str:
        return f"FeatureBank({self.describe()}, layers {self.widths})"

    def describe(self) -> str:
        """Return the content of the bank as text."""
        return counted(len(self), "centre") if self.k is None else f"{len(self):,} training samples, k = {self.k}"

    def __getitem__(self, layer: str) -> ArrayOrTensor:
        """Return the centres or normalised rows of a layer, of shape (number, width)."""
        features: ArrayOrTensor = self._features[layer]
        return features

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        # A bank is immutable, and a copy by scikit-learn's clone would take hundreds of megabytes.
        return self

    def state(self) -> BankState:
        """Return the state that is saved in a file."""
        return BankState(dict(self._features), self.k, dict(self._counts) if self.k is None else None)

    @classmethod
    def from_state(cls, state: BankState) -> FeatureBank:
        """Restore a bank from its state."""
        if state.counts is not None:
            given = {layer: check_features({layer: one})[layer] for layer, one in state.features.items()}
            centres = {layer: check_finite_floats(array, layer) for layer, array in given.items()}
            counts = {layer: check_finite_floats(state.counts[layer], layer) for layer in centres}
            if any(counts[layer].shape != array.shape[:1] for layer, array in centres.items()):
                raise ValueError("The bank must have one count per centre.")
            centres = {layer: rounded(array) for layer, array in centres.items()}
            return cls._of(centres, counts, DEFAULT_MEMORY_BUDGET)
        bank = cls(state.features, k=state.k)
        # Rows that are normalised a second time differ by rounding errors, and would be another bank.
        bank._features |= {layer: rows for layer, rows in state.features.items() if rows.dtype.itemsize == 4}
        return bank

    def select(self, layers: Iterable[str]) -> FeatureBank:
        """Return a bank of some of the layers that shares their memory."""
        layers = list(layers)
        if not layers or not set(layers) <= self._features.keys():
            raise ValueError(f"The bank has the layers {list(self._features)}, got {layers}.")
        part = copy(self)
        part.__dict__.pop("fingerprint", None)
        part._features = {layer: self._features[layer] for layer in layers}
        part._counts = {layer: self._counts[layer] for layer in layers if self.k is None}
        return part

    @cached_property
    def fingerprint(self) -> str:
        """A short hash of the bank's layers and of all its rows, which identifies the bank."""
        digest = hashlib.sha256()
        for layer, array in self._features.items():
            digest.update(f"{layer}:{tuple(array.shape)}".encode())
            for rows in row_blocks(len(array), 4 * array.shape[1]):
                digest.update(np.ascontiguousarray(to_numpy(array[rows]), np.float32).data)
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
        pairs = [(unit, self._features[layer]) for layer, unit in self._unit_vectors(features).items()]
        if self.k is None:
            if k is not None or exclude_self:
                raise ValueError(
                    "This bank has centres, which have no k-th neighbour and are no samples: k and exclude_self need "
                    "rows, FeatureBank(features, k=...)."
                )
            columns = [nearest_distances(*pair, self.memory_budget) for pair in pairs]
            found: ArrayOrTensor = namespace(columns[0]).stack(columns, axis=1)
            return found
        wanted = self.k if k is None else k
        ks = np.atleast_1d(wanted).tolist()
        if not ks:
            raise ValueError("k must be a whole number or a sequence of them, got an empty sequence.")
        for one in ks:
            check_k(one, len(self) - exclude_self)
        # Without the query itself, the next neighbour counts; the first one shows whether the query is in the bank.
        deeper = [*ks, *(one + 1 for one in ks), 1] if exclude_self else ks
        columns = [search(*pair, deeper, self.backend, self.memory_budget) for pair in pairs]
        stacked: ArrayOrTensor = namespace(columns[0]).stack(columns, axis=1)
        if exclude_self:
            is_self = stacked[:, :, -1:] < SELF_DISTANCE
            stacked = namespace(stacked).where(is_self, stacked[:, :, len(ks) : 2 * len(ks)], stacked[:, :, : len(ks)])
        return stacked if np.ndim(wanted) else stacked[:, :, 0]

    def _unit_vectors(self, features: Mapping[str, ArrayLike]) -> dict[str, Array]:
        """Return the normalised features of the bank's layers. Other layers are ignored."""
        given = check_features(features)
        missing = [layer for layer in self.layers if layer not in given]
        if missing:
            raise ValueError(
                f"features lack the layers {missing} of the bank, got {sorted(given)}. Extract the same layers for "
                "every data set."
            )
        for layer, width in self.widths.items():
            if given[layer].shape[1] != width:
                raise ValueError(
                    f"features[{layer!r}] have width {given[layer].shape[1]}, but the bank has width {width}. They "
                    "come from another layer or another classifier."
                )
        return {layer: unit_rows(given[layer], layer) for layer in self.layers}
