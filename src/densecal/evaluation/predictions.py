"""Predictions: what one method predicts on one condition."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Predictions(NamedTuple):
    """One method's top-1 confidence on one condition, and whether each prediction is correct (None without labels).

    Examples
    --------
    >>> Predictions(np.array([0.9, 0.6]), np.array([True, False])).confidence
    array([0.9, 0.6])
    """

    confidence: NDArray[np.float64]
    correct: NDArray[np.bool_] | None
