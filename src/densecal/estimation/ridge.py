"""The ridge regression of the accuracy of domains on their features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.special import expit

from densecal.estimation.domains import Domain

RIDGE = 0.3
"""Penalty of the standardised slopes, relative to the mean squared error."""
CLEAN_WEIGHT = 45.0
"""Weight of the clean data in the scale and the leverage; the weight of a domain is at most 1."""


class Ridge(NamedTuple):
    """A weighted ridge regression of target - first feature on the scaled features, exact on the clean data."""

    intercept: Any
    slopes: Any
    centre: Any
    scale: Any
    covariance: Any
    clean: Any
    reach: Any

    @classmethod
    def fit(cls, domains: Sequence[Domain], features: Any, target: Any, clean: Any, clean_target: float) -> Self:
        """Fit to the features and targets of domains, through those of the clean data."""
        weights = np.array([domain.weight for domain in domains])
        share = np.append(weights, CLEAN_WEIGHT) / (weights.sum() + CLEAN_WEIGHT)
        every = np.vstack([features, clean])
        centre = share @ every
        scale = np.maximum(np.sqrt(share @ (every - centre) ** 2), 1e-6)
        design, from_clean = (every - centre) / scale, (features - clean) / scale
        penalty = RIDGE * np.eye(design.shape[1])
        covariance = np.linalg.inv((design.T * share) @ design + penalty)
        intercept = clean_target - clean[0]
        weighted = from_clean.T * (weights / weights.sum())
        slopes = np.linalg.solve(weighted @ from_clean + penalty, weighted @ (target - features[:, 0] - intercept))
        moments = from_clean.T @ from_clean / len(from_clean)
        reach = np.linalg.inv(moments + penalty * max(float(np.mean(np.diag(moments))), 1e-6))
        return cls(intercept, slopes, centre, scale, covariance, clean, reach)

    def predict(self, features: Any) -> Any:
        """Return the predicted targets."""
        return features[..., 0] + self.belief(features) * self._correction(features)

    def withheld(self, features: Any) -> Any:
        """Return the part of the correction that is not applied."""
        return (1 - self.belief(features)) * self._correction(features)

    def _correction(self, features: Any) -> Any:
        return self.intercept + ((features - self.clean) / self.scale) @ self.slopes

    def belief(self, features: Any) -> Any:
        """Return the applied fraction of the correction; the mean squared distance of the domains is about 2."""
        squared = _quadratic((features - self.clean) / self.scale, self.reach)
        return np.minimum(1.0, len(self.slopes) / np.maximum(squared, 1e-12))

    def leverage(self, features: Any) -> Any:
        """Return the leverage of the features: how unlike the domains they are."""
        return _quadratic((features - self.centre) / self.scale, self.covariance)

    def gradients(self, features: Any) -> Any:
        """Return the derivatives of the prediction with respect to the means of the signals, for a constant belief."""
        share = expit(features[0])
        return np.array([1 / (share * (1 - share)), 1.0]) * (self.belief(features) * self.slopes / self.scale + [1, 0])


def _quadratic(vectors: Any, matrix: Any) -> Any:
    return np.sum(vectors @ matrix * vectors, axis=-1)
