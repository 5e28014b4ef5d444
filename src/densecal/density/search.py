"""The distance to the k-th nearest row of a bank, with NumPy, faiss or torch."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any, Literal

import numpy as np

from densecal.arrays import Array, is_torch, row_blocks, to_device_of, to_numpy

Backend = Literal["auto", "numpy", "faiss", "torch"]
FAISS_BYTES_PER_NEIGHBOUR = 12
"""faiss returns a float32 product and an int64 index per neighbour."""
NUMPY_BYTES_PER_ROW = 10
"""A block holds its products and, during the partition, a copy of them and some working memory."""


def check_k(k: int, n_rows: int) -> None:
    """Raise unless k is a positive integer and at most the number of rows."""
    if isinstance(k, bool) or not isinstance(k, (int, np.integer)) or k < 1:
        raise ValueError(f"k must be an integer of at least 1, got {k!r}.")
    if k > n_rows:
        raise ValueError(f"k must be at most {n_rows}, the number of neighbours in the bank, got {k}.")


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
