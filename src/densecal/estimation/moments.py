"""Moments of the signals of samples, which can be combined over parts of a stream."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np


class Moments(NamedTuple):
    """The number of samples, the means of their signals, and the means of the products of two signals."""

    n_samples: int
    means: Any
    products: Any

    @classmethod
    def of(cls, signals: Any) -> Self:
        """Return the moments of the signals of some samples."""
        return cls(len(signals), np.mean(signals, axis=0), signals.T @ signals / len(signals))

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """Return the moments of all parts together."""
        n_samples = sum(part.n_samples for part in parts)
        means, products = (sum(part.n_samples * part[place] for part in parts) / n_samples for place in (1, 2))
        return cls(n_samples, means, products)

    def variance(self, weights: Any) -> float:
        """Return the variance of a weighted sum of the signals."""
        return max(0.0, float(weights @ self.products @ weights - (weights @ self.means) ** 2))
