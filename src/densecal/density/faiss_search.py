"""Exact k-th neighbour distances of NumPy arrays, by faiss on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import faiss
import numpy as np

from densecal.arrays import row_blocks

BYTES_PER_NEIGHBOUR = 12
"""faiss answers with a float32 product and an int64 index for every neighbour."""


def kth_distances(queries: Any, bank: Any, ks: Sequence[int], *, memory_budget: int) -> Any:
    """Return distances to the k-th nearest unit vectors of the bank, for every k in ``ks``.

    For unit vectors d = sqrt(2 - 2 cos), so the largest inner products are the nearest neighbours.
    """
    queries = np.ascontiguousarray(queries, dtype=np.float32)
    bank = np.ascontiguousarray(bank, dtype=np.float32)
    deepest = max(ks)
    columns = np.asarray(ks) - 1
    distances = np.empty((len(queries), len(ks)), np.float32)
    for rows in row_blocks(len(queries), deepest * BYTES_PER_NEIGHBOUR, memory_budget):
        products, _ = faiss.knn(queries[rows], bank, deepest, metric=faiss.METRIC_INNER_PRODUCT)
        # Rounding can push a product above one: without the guard the root of a self-distance would be NaN.
        distances[rows] = np.sqrt(np.maximum(2 - 2 * products[:, columns], 0))
    return distances
