"""Exact k-th neighbour distances of NumPy arrays, in blocks of one matrix product each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from densecal.arrays import row_blocks


def kth_distances(queries: Any, bank: Any, ks: Sequence[int], *, memory_budget: int) -> Any:
    """Return distances to the k-th nearest unit vectors of the bank, of shape (n_queries, len(ks)), in float32."""
    queries, bank = np.asarray(queries, np.float32), np.asarray(bank, np.float32)
    found = np.empty((len(queries), len(ks)), np.float32)
    # A block holds its products and, while they are partitioned, a copy.
    for rows in row_blocks(len(queries), 8 * len(bank), memory_budget):
        products = queries[rows] @ bank.T
        np.negative(products, out=products)
        products.partition(sorted({k - 1 for k in ks}), axis=1)
        nearest = -products[:, [k - 1 for k in ks]]
        # Rounding can push a product above one.
        found[rows] = np.sqrt(np.maximum(2 - 2 * nearest, 0))
    return found
