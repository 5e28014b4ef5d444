"""FeatureBank: training features of each layer, and the distances of new inputs from them."""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Iterable, Mapping, Sequence
from functools import cache, cached_property
from importlib.util import find_spec
from typing import Any, Literal, Self

import numpy as np

from densecal.arrays import Array, ArrayLike, ArrayOrTensor, is_torch, namespace, row_blocks, to_device_of, to_numpy
from densecal.arrays.checks import check_features, check_finite_floats
from densecal.density.defaults import DEFAULT_K, DEFAULT_MEMORY_BUDGET, BankSize, choose_bank_size
from densecal.io.artefacts import BankState

Backend = Literal["auto", "numpy", "faiss", "torch"]
BACKENDS = ("auto", "numpy", "faiss", "torch")
FAISS_BYTES_PER_NEIGHBOUR = 12
"""faiss returns a float32 product and an int64 index per neighbour."""
SELF_DISTANCE = 2e-3
"""With ``exclude_self``, a first neighbour nearer than this is treated as the query itself."""


class FeatureBank:
    """Normalised training features of each layer, searched for the k-th nearest neighbour.

    The distance in layer l is s_l(x) = ||z - z_(k)||, where z is the feature of the input divided by its Euclidean
    norm and z_(k) is the k-th nearest of the normalised training features. An all-zero feature has no direction. It
    is treated as orthogonal to all others, so its distance is sqrt(2).

    Parameters
    ----------
    features : mapping of str to array of shape (n_samples, width)
        Training features of each layer, averaged over positions or tokens.
    k : int, default 50
        Measure the distance to the k-th nearest neighbour. The paper uses 50 for CIFAR-10 and 200 for CIFAR-100 (all
        training images), and 10 for ImageNet (1 % of them).
    bank_size : int, float or "auto", optional
        The number (int) or fraction (float) of training samples to keep, drawn with ``seed``; all by default.
    backend : {"auto", "numpy", "faiss", "torch"}
        ``auto`` searches torch tensors with torch on their device, and NumPy arrays with faiss if it is installed,
        else with NumPy.
    memory_budget : int
        Bytes that a search may use in addition to the features, for any number of queries.

    Examples
    --------
    >>> bank = FeatureBank({"pool": [[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]}, k=1)
    >>> bank.distances({"pool": [[2.0, 0.0], [1.0, 3.0]]}).round(3)
    array([[0.  ],
           [0.32]], dtype=float32)
    >>> bank.distances({"pool": [[2.0, 0.0]]}, k=[1, 2]).shape
    (1, 1, 2)
    """

    def __init__(
        self,
        features: Mapping[str, ArrayLike],
        k: int = DEFAULT_K,
        *,
        bank_size: BankSize = None,
        seed: int = 0,
        backend: Backend = "auto",
        memory_budget: int = DEFAULT_MEMORY_BUDGET,
    ) -> None:
        arrays = check_features(features)
        if not arrays:
            raise ValueError("features must have at least one layer, got none.")
        if backend not in BACKENDS:
            raise ValueError(f"backend must be one of {BACKENDS}, got {backend!r}.")
        rows = _draw_rows(next(iter(arrays.values())).shape[0], bank_size, seed)
        self._features = {
            layer: normalise(array if rows is None else array[rows], f"features[{layer!r}]")
            for layer, array in arrays.items()
        }
        self.k = k
        self.backend = backend
        self.memory_budget = memory_budget
        self._on_device: dict[tuple[str, str], Array] = {}
        self._check_k(k)

    @property
    def layers(self) -> tuple[str, ...]:
        """The names of the layers, in the order of the columns of the distances."""
        return tuple(self._features)

    @property
    def widths(self) -> dict[str, int]:
        """The number of features of each layer."""
        return {layer: int(array.shape[1]) for layer, array in self._features.items()}

    def __len__(self) -> int:
        return int(next(iter(self._features.values())).shape[0])

    def __repr__(self) -> str:
        return f"FeatureBank({len(self)} samples, k={self.k}, layers {self.widths})"

    def __getitem__(self, layer: str) -> ArrayOrTensor:
        """Return the normalised features of a layer, of shape (n_samples, width)."""
        features: ArrayOrTensor = self._features[layer]
        return features

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        # A bank is immutable, and a copy by scikit-learn's clone would take hundreds of megabytes.
        return self

    def state(self) -> BankState:
        """Return the state that is saved in a file."""
        return BankState(dict(self._features), self.k)

    @classmethod
    def from_state(cls, state: BankState) -> FeatureBank:
        """Restore a bank from its state."""
        return cls(state.features, k=state.k)

    def select(self, layers: Iterable[str]) -> FeatureBank:
        """Return a bank of some of the layers that shares their memory."""
        layers = list(layers)
        unknown = [layer for layer in layers if layer not in self._features]
        if unknown or not layers:
            raise ValueError(f"The bank has the layers {list(self._features)}, got {layers}.")
        part = object.__new__(FeatureBank)
        part.__dict__.update(self.__getstate__())
        part.__dict__.pop("fingerprint", None)
        part._features = {layer: self._features[layer] for layer in layers}
        return part

    @cached_property
    def fingerprint(self) -> str:
        """A short hash of the bank's layers and of a sample of its rows, which tells one bank from another."""
        digest = hashlib.sha256()
        for layer, array in self._features.items():
            rows = to_numpy(array[:: max(1, len(self) // 64)]).astype(np.float32)
            digest.update(f"{layer}:{tuple(array.shape)}".encode() + rows.tobytes())
        return digest.hexdigest()[:16]

    def __getstate__(self) -> dict[str, object]:
        # Copies on other devices are made again when they are needed.
        return {**self.__dict__, "_on_device": {}}

    def distances(
        self,
        features: Mapping[str, ArrayLike],
        *,
        k: int | Sequence[int] | None = None,
        exclude_self: bool = False,
    ) -> ArrayOrTensor:
        """Return the distance of each input to its k-th nearest training sample in each layer.

        Parameters
        ----------
        features : mapping of str to array of shape (n_samples, width)
            The features of the inputs. Layers that are not in the bank are ignored.
        k : int or sequence of int, optional
            Overrides the bank's k. Several values share one search.
        exclude_self : bool, default False
            Whether the inputs are in the bank, so that an input is not its own neighbour.

        Returns
        -------
        array of shape (n_samples, n_layers), or (n_samples, n_layers, len(k)) for a sequence of k
        """
        k = self.k if k is None else k
        ks = [k] if (single := isinstance(k, (int, np.integer))) else [operator.index(one) for one in k]
        if not ks:
            raise ValueError("k must be a whole number or a sequence of them, got an empty sequence.")
        for one in ks:
            self._check_k(one, exclude_self=exclude_self)
        queries = self._check_queries(features)
        columns = [self._search(layer, array, ks, exclude_self) for layer, array in queries.items()]
        stacked = namespace(columns[0]).stack(columns, axis=1)
        found: ArrayOrTensor = stacked[:, :, 0] if single else stacked
        return found

    def _search(self, layer: str, queries: Array, ks: list[int], exclude_self: bool) -> Array:
        deeper = [*ks, *(k + 1 for k in ks), 1] if exclude_self else ks
        queries = normalise(queries, f"features[{layer!r}]")
        backend = self.backend
        if backend == "auto":
            backend = "torch" if is_torch(queries) else "faiss" if _is_installed("faiss") else "numpy"
        if backend != "numpy" and not _is_installed(backend):
            raise ImportError(f'backend={backend!r} needs {backend}: pip install "densecal[{backend}]".')
        if backend == "torch":
            from densecal.density.torch_search import kth_distances

            found = kth_distances(*self._as_torch(layer, queries), deeper, memory_budget=self.memory_budget)
        else:
            largest = _faiss_products if backend == "faiss" else _numpy_products
            rows, bank = (np.ascontiguousarray(to_numpy(a), np.float32) for a in (queries, self._features[layer]))
            products = largest(rows, bank, deeper, self.memory_budget)
            # For unit vectors d = sqrt(2 - 2 cos). Rounding can make the product of a row with itself exceed one.
            found = np.sqrt(np.maximum(2 - 2 * products, 0))
        found = to_device_of(found, queries)
        if not exclude_self:
            return found
        xp, count = namespace(found), len(ks)
        return xp.where(found[:, -1:] < SELF_DISTANCE, found[:, count : 2 * count], found[:, :count])

    def _as_torch(self, layer: str, queries: Array) -> tuple[Array, Array]:
        import torch

        queries = torch.as_tensor(queries)
        key = (layer, str(queries.device))
        if key not in self._on_device:
            self._on_device[key] = torch.as_tensor(self._features[layer], device=queries.device)
        return queries, self._on_device[key]

    def _check_k(self, k: int, *, exclude_self: bool = False) -> None:
        if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1:
            raise ValueError(f"k must be an integer of at least 1, got {k!r}.")
        available = len(self) - exclude_self
        if k > available:
            raise ValueError(
                f"k must be at most {available}, the number of neighbours in the bank, got {k}. "
                "Choose a smaller k or a larger bank."
            )

    def _check_queries(self, features: Mapping[str, ArrayLike]) -> dict[str, Array]:
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
        return {layer: given[layer] for layer in self.layers}


@cache
def _is_installed(package: str) -> bool:
    return find_spec(package) is not None


def _faiss_products(queries: Any, bank: Any, ks: Sequence[int], memory_budget: int) -> Any:
    """Return the k-th largest inner product with the rows of the bank for each k, of shape (n_queries, len(ks))."""
    import faiss

    found, deepest = np.empty((len(queries), len(ks)), np.float32), max(ks)
    for rows in row_blocks(len(queries), deepest * FAISS_BYTES_PER_NEIGHBOUR, memory_budget):
        products, _ = faiss.knn(queries[rows], bank, deepest, metric=faiss.METRIC_INNER_PRODUCT)
        found[rows] = products[:, np.asarray(ks) - 1]
    return found


def _numpy_products(queries: Any, bank: Any, ks: Sequence[int], memory_budget: int) -> Any:
    """Return the same as `_faiss_products`, with one matrix product per block."""
    found, places = np.empty((len(queries), len(ks)), np.float32), np.asarray(ks) - 1
    # A block holds its products and, during the partition, a copy of them.
    for rows in row_blocks(len(queries), 8 * len(bank), memory_budget):
        products = queries[rows] @ bank.T
        np.negative(products, out=products)
        products.partition(np.unique(places), axis=1)
        found[rows] = -products[:, places]
    return found


def normalise(features: Array, name: str) -> Array:
    """Divide each row by its Euclidean norm, in float32. An all-zero row remains zero."""
    array = check_finite_floats(features, name)
    xp = namespace(array)
    # Scaling by the largest entry first prevents overflow and underflow, of the squares and of float64 in float32.
    largest = xp.max(xp.abs(array), axis=1, keepdims=True) if array.shape[0] else array[:, :1]
    array = xp.astype(array / xp.where(largest > 0, largest, xp.ones_like(largest)), xp.float32)
    norm = xp.sqrt(xp.sum(array * array, axis=1, keepdims=True))
    return array / xp.where(norm > 0, norm, xp.ones_like(norm))


def _draw_rows(available: int, bank_size: BankSize, seed: int) -> Any | None:
    size = choose_bank_size(available, bank_size)
    if size == available:
        return None
    return np.sort(np.random.default_rng(seed).choice(available, size, replace=False))
