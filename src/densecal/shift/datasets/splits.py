"""Seeded parts of a data set that are the same on every machine and for good."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SPLIT_SEED = 0


def seeded_part(total: int, size: int) -> NDArray[np.int64]:
    """Give ``size`` of the positions 0 to ``total`` - 1, drawn with the fixed seed, in ascending order.

    NumPy's legacy generator draws them because its stream is frozen: today's split is every later NumPy's
    split. Ascending order keeps reads from disk sequential.

    Examples
    --------
    >>> seeded_part(10, 3)
    array([2, 4, 8])
    """
    drawn = np.random.RandomState(SPLIT_SEED).permutation(total)[:size]
    return np.sort(drawn).astype(np.int64)


def seeded_rest(total: int, size: int) -> NDArray[np.int64]:
    """Give the positions that :func:`seeded_part` leaves.

    Examples
    --------
    >>> seeded_rest(10, 3)
    array([0, 1, 3, 5, 6, 7, 9])
    """
    return np.setdiff1d(np.arange(total, dtype=np.int64), seeded_part(total, size))
