"""Unit vectors of features, and their distances to the k-th nearest row of a bank, with NumPy, faiss or torch."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any, Literal

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
from densecal.arrays.checks import check_features, check_finite_floats
from densecal.density.defaults import BankSize, choose_bank_size

Backend = Literal["auto", "numpy", "faiss", "torch"]
BACKENDS = ("auto", "numpy", "faiss", "torch")
FAISS_BYTES_PER_NEIGHBOUR = 12
"""faiss returns a float32 product and an int64 index per neighbour."""
SELF_DISTANCE = 2e-3
"""With ``exclude_self``, a first neighbour nearer than this is treated as the query itself."""


def normalise(features: Array, name: str) -> Array:
    """Divide each row by its Euclidean norm, in float32. An all-zero row remains zero."""
    array = check_finite_floats(features, name)
    xp = namespace(array)
    # Scaling by the largest entry first prevents overflow and underflow, of the squares and of float64 in float32.
    largest = xp.max(xp.abs(array), axis=1, keepdims=True) if array.shape[0] else array[:, :1]
    array = xp.astype(array / xp.where(largest > 0, largest, xp.ones_like(largest)), xp.float32)
    norm = xp.sqrt(xp.sum(array * array, axis=1, keepdims=True))
    return array / xp.where(norm > 0, norm, xp.ones_like(norm))


def unit_vectors(features: Mapping[str, ArrayLike], widths: Mapping[str, int]) -> dict[str, Array]:
    """Return the normalised features of some layers of the given widths. Other layers are ignored."""
    given = check_features(features)
    missing = [layer for layer in widths if layer not in given]
    if missing:
        raise ValueError(
            f"features lack the layers {missing} of the bank, got {sorted(given)}. Extract the same layers for every "
            "data set."
        )
    for layer, width in widths.items():
        if given[layer].shape[1] != width:
            raise ValueError(
                f"features[{layer!r}] have width {given[layer].shape[1]}, but the bank has width {width}. They come "
                "from another layer or another classifier."
            )
    return {layer: normalise(given[layer], f"features[{layer!r}]") for layer in widths}


def draw_rows(available: int, bank_size: BankSize, seed: int, k: int) -> Any | None:
    """Return the rows that a bank keeps, in order, or None for all; raise if k is no neighbour of so many."""
    size = choose_bank_size(available, bank_size)
    check_k(k, size)
    return random_rows(available, size, seed)


def check_k(k: int, n_rows: int) -> None:
    """Raise if k is no neighbour of a bank of so many rows."""
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1:
        raise ValueError(f"k must be an integer of at least 1, got {k!r}.")
    if k > n_rows:
        raise ValueError(
            f"k must be at most {n_rows}, the number of neighbours in the bank, got {k}. "
            "Choose a smaller k or a larger bank."
        )


def kth_row_distances(
    queries: Mapping[str, Array],
    bank: Mapping[str, Array],
    k: int | Sequence[int],
    *,
    backend: Backend,
    memory_budget: int,
    exclude_self: bool,
) -> ArrayOrTensor:
    """Return the distances of unit vectors to their k-th nearest rows in each layer.

    The shape is (n_queries, n_layers), or (n_queries, n_layers, len(k)) for several k.
    """
    ks = [k] if (single := isinstance(k, (int, np.integer))) else [operator.index(one) for one in k]
    if not ks:
        raise ValueError("k must be a whole number or a sequence of them, got an empty sequence.")
    for one in ks:
        check_k(one, len(next(iter(bank.values()))) - exclude_self)
    # To leave the query out, one more neighbour is needed, and the first one tells whether it is the query.
    deeper = [*ks, *(one + 1 for one in ks), 1] if exclude_self else ks
    columns = []
    for layer, rows in queries.items():
        found = _search(rows, bank[layer], deeper, backend, memory_budget)
        if exclude_self:
            is_self = found[:, -1:] < SELF_DISTANCE
            found = namespace(found).where(is_self, found[:, len(ks) : 2 * len(ks)], found[:, : len(ks)])
        columns.append(found)
    stacked = namespace(columns[0]).stack(columns, axis=1)
    distances: ArrayOrTensor = stacked[:, :, 0] if single else stacked
    return distances


def _search(queries: Array, bank: Array, ks: Sequence[int], backend: Backend, memory_budget: int) -> Array:
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
    largest = _faiss_products if backend == "faiss" else _numpy_products
    left, right = (np.ascontiguousarray(to_numpy(a), np.float32) for a in (queries, bank))
    # For unit vectors d = sqrt(2 - 2 cos). Rounding can make the product of a row with itself exceed one.
    return to_device_of(np.sqrt(np.maximum(2 - 2 * largest(left, right, ks, memory_budget), 0)), queries)


@cache
def is_installed(package: str) -> bool:
    """Return whether a package can be imported."""
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
    # A block holds its products and, during the partition, a copy of them and some working memory.
    for rows in row_blocks(len(queries), 10 * len(bank), memory_budget):
        products = queries[rows] @ bank.T
        np.negative(products, out=products)
        products.partition(np.unique(places), axis=1)
        found[rows] = -products[:, places]
    return found
