"""FeatureBank: the training features of each layer, and the distances of new inputs from them."""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from functools import cache, cached_property
from importlib.util import find_spec
from typing import Any, Literal, Self

import numpy as np

from densecal.arrays import (
    Array,
    ArrayLike,
    ArrayOrTensor,
    is_torch,
    namespace,
    random_rows,
    row_blocks,
    to_device_of,
    to_numpy,
)
from densecal.arrays.checks import check_choice, check_features, check_finite_floats, unit_rows
from densecal.density.centres import CentreBank, find_centres, nearest_distances, rounded
from densecal.density.defaults import DEFAULT_MEMORY_BUDGET, BankSize, Centres, choose_bank_size
from densecal.density.sample import FeatureSample
from densecal.display import counted
from densecal.io.artefacts import BankState

Backend = Literal["auto", "numpy", "faiss", "torch"]
FAISS_BYTES_PER_NEIGHBOUR = 12
"""faiss returns a float32 product and an int64 index per neighbour."""
NUMPY_BYTES_PER_ROW = 10
"""A block holds its products and, during the partition, a copy of them and some working memory."""
SELF_DISTANCE = 2e-3
"""With ``exclude_self``, a first neighbour nearer than this counts as the query itself."""


class FeatureBank(CentreBank):
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
        self._counts: dict[str, Array] | None = None
        if k is None:
            wanted: Centres = "auto" if centres is None else centres
            sample = FeatureSample.of([features], wanted, seed)
            self._features, self._counts = find_centres(sample, wanted, memory_budget)
            return
        arrays = check_features(features)
        if not arrays:
            raise ValueError("features must have at least one layer, got none.")
        available = next(iter(arrays.values())).shape[0]
        check_k(k, size := choose_bank_size(available, bank_size))
        rows = random_rows(available, size, seed)
        self._features = {
            layer: unit_rows(array if rows is None else array[rows], layer) for layer, array in arrays.items()
        }

    @property
    def layers(self) -> tuple[str, ...]:
        """The names of the layers, in the order of the columns of the distances."""
        return tuple(self._features)

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
        return BankState(dict(self._features), self.k, None if self._counts is None else dict(self._counts))

    @classmethod
    def from_state(cls, state: BankState) -> FeatureBank:
        """Restore a bank from its state."""
        if state.counts is not None:
            centres, counts = (
                {layer: check_finite_floats(array, layer) for layer, array in arrays.items()}
                for arrays in (state.features, state.counts)
            )
            if any(counts[layer].shape != array.shape[:1] for layer, array in centres.items()):
                raise ValueError("The bank must have one count per centre.")
            return cls._of({layer: rounded(array) for layer, array in centres.items()}, counts)
        bank = cls(state.features, k=state.k)
        # Rows that are normalised a second time differ by rounding errors, and would be another bank.
        bank._features |= {layer: rows for layer, rows in state.features.items() if rows.dtype.itemsize == 4}
        return bank

    def select(self, layers: Iterable[str]) -> FeatureBank:
        """Return a bank of some of the layers that shares their memory."""
        layers = list(layers)
        unknown = [layer for layer in layers if layer not in self._features]
        if unknown or not layers:
            raise ValueError(f"The bank has the layers {list(self._features)}, got {layers}.")
        part = copy(self)
        part.__dict__.pop("fingerprint", None)
        part._features = {layer: self._features[layer] for layer in layers}
        part._counts = None if self._counts is None else {layer: self._counts[layer] for layer in layers}
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
        ks = [wanted] if isinstance(wanted, (int, np.integer)) else [operator.index(one) for one in wanted]
        if not ks:
            raise ValueError("k must be a whole number or a sequence of them, got an empty sequence.")
        for one in ks:
            check_k(one, len(self) - exclude_self)
        # Without the query itself, the next neighbour counts; the first one shows whether the query is in the bank.
        deeper = [*ks, *(one + 1 for one in ks), 1] if exclude_self else ks
        columns = [search(*pair, deeper, self.backend, self.memory_budget) for pair in pairs]
        stacked = namespace(columns[0]).stack(columns, axis=1)
        if exclude_self:
            is_self = stacked[:, :, -1:] < SELF_DISTANCE
            stacked = namespace(stacked).where(is_self, stacked[:, :, len(ks) : 2 * len(ks)], stacked[:, :, : len(ks)])
        distances: ArrayOrTensor = stacked[:, :, 0] if isinstance(wanted, (int, np.integer)) else stacked
        return distances

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


def check_k(k: int, n_rows: int) -> None:
    """Raise unless k is a positive integer and at most the number of rows."""
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1:
        raise ValueError(f"k must be an integer of at least 1, got {k!r}.")
    if k > n_rows:
        raise ValueError(
            f"k must be at most {n_rows}, the number of neighbours in the bank, got {k}. "
            "Choose a smaller k or a larger bank."
        )


def search(queries: Array, bank: Array, ks: Sequence[int], backend: str, memory_budget: int) -> Array:
    """Return the distances of unit vectors to their k-th nearest rows, of shape (n_queries, len(ks))."""
    if backend == "auto":
        backend = "torch" if is_torch(queries) else "faiss" if is_installed("faiss") else "numpy"
    if backend != "numpy" and not is_installed(backend):
        raise ImportError(f'backend={backend!r} needs {backend}: pip install "densecal[{backend}]".')
    if backend == "torch":
        import torch

        from densecal.density.torch_search import kth_distances

        tensor = torch.as_tensor(queries)
        bank = torch.as_tensor(bank, device=tensor.device)
        return to_device_of(kth_distances(tensor, bank, ks, memory_budget=memory_budget), queries)
    left, right = (np.ascontiguousarray(to_numpy(a), np.float32) for a in (queries, bank))
    largest, bytes_per_query = _numpy_products, NUMPY_BYTES_PER_ROW * len(right)
    if backend == "faiss":
        largest, bytes_per_query = _faiss_products, FAISS_BYTES_PER_NEIGHBOUR * max(ks)
    products = np.empty((len(left), len(ks)), np.float32)
    for rows in row_blocks(len(left), bytes_per_query, memory_budget):
        products[rows] = largest(left[rows], right, np.asarray(ks) - 1)
    # For unit vectors d = sqrt(2 - 2 cos). Rounding can make the product of a row with itself exceed one.
    return to_device_of(np.sqrt(np.maximum(2 - 2 * products, 0)), queries)


@cache
def is_installed(package: str) -> bool:
    """Return whether a package can be imported."""
    return find_spec(package) is not None


def _faiss_products(queries: Any, bank: Any, places: Any) -> Any:
    """Return the inner products with the rows of the bank at some places of their descending order."""
    import faiss

    return faiss.knn(queries, bank, int(places.max()) + 1, metric=faiss.METRIC_INNER_PRODUCT)[0][:, places]


def _numpy_products(queries: Any, bank: Any, places: Any) -> Any:
    products = queries @ bank.T
    np.negative(products, out=products)
    products.partition(np.unique(places), axis=1)
    return -products[:, places]
