"""A regression of the accuracy of a batch on its confidences, learned over shifted domains.

For every domain, logit(accuracy) is regressed on two features of the domain: logit(mean confidence after the shift fit)
and logit(ATC), where ATC (Garg et al. 2022) is the fraction of samples whose confidence after temperature scaling
exceeds a threshold. The ridge penalty draws the regression to logit(accuracy) = logit(mean confidence) + constant, so
that a batch unlike every domain gets nearly the mean confidence of the shift fit. Both features are means over samples,
and neither depends on the shares of the predicted classes. ``reproduction/studies/estimation.py`` determined the
constants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.special import expit, logit
from scipy.stats import norm

from densecal.estimation.domains import CLEAN, Domain, make_domains

RIDGE = 0.3
"""Penalty of the standardised slopes, relative to the mean squared error."""
LEVEL = 0.95
"""Probability that an interval holds the accuracy."""
PRIOR_ERROR = 0.25
"""Relative error of the regression before any domain is held out."""
PRIOR_KINDS = 4
"""The prior error counts as much as this many kinds of shift."""
SMALLEST_SHIFT = 0.3
"""Batches nearer to the clean data have the error of a batch at this distance, on the logit scale."""


class Interval(NamedTuple):
    """An estimated accuracy and its bounds."""

    accuracy: float
    low: float
    high: float


@dataclass(frozen=True)
class AccuracyModel:
    """The regression of the accuracy, as plain numbers.

    Attributes
    ----------
    threshold : float
        The confidence that as many clean samples exceed as are classified correctly.
    intercept, slopes, centre, scale : float, lists
        logit(accuracy) - logit(mean confidence) = intercept + slopes @ ((features - centre) / scale).
    covariance : list of lists
        Of the intercept and the slopes, for a residual variance of 1.
    clean_logit : float
        Predicted logit(accuracy) on the clean data.
    relative_error : float
        Standard error on kinds of shift that the regression has not seen, as a fraction of the shift: of how far
        logit(accuracy) lies from that of clean data.
    n_domains, n_kinds : int
        The number of domains and of kinds of shift that it was learned from.
    """

    threshold: float
    intercept: float
    slopes: list[float]
    centre: list[float]
    scale: list[float]
    covariance: list[list[float]]
    clean_logit: float
    relative_error: float
    n_domains: int
    n_kinds: int

    @classmethod
    def learn(cls, confidence: Any, plain_confidence: Any, correct: Any, names: Sequence[str]) -> Self:
        """Learn the regression from clean samples, followed by shifted ones.

        Parameters
        ----------
        confidence, plain_confidence : arrays of shape (n_samples,)
            Confidence after the shift fit, and after temperature scaling by likelihood.
        correct : array of shape (n_samples,)
            Whether the predicted class is the label.
        names : sequence of str
            The domain of each shifted sample, as in `make_domains`.
        """
        n_clean = len(correct) - len(names)
        threshold = float(np.quantile(plain_confidence[:n_clean], 1 - np.mean(correct[:n_clean])))
        signals = np.column_stack([confidence, plain_confidence > threshold])
        domains = make_domains(names, n_clean)
        features = np.array([_features(signals[domain.rows]) for domain in domains])
        target = np.array([_logit(np.mean(correct[domain.rows]), len(domain.rows)) for domain in domains])
        fit = _Ridge.fit(features, target, np.array([domain.weight for domain in domains]))
        clean_logit = float(fit.predict(_features(signals[:n_clean])[None])[0])
        error, n_kinds = _held_out_error(domains, features, target, clean_logit)
        return cls(threshold, *fit.numbers(), clean_logit, error, len(domains), n_kinds)

    def signals(self, confidence: Any, plain_confidence: Any) -> Any:
        """Return the values of each sample whose means over a batch determine its estimate."""
        return np.column_stack([confidence, plain_confidence > self.threshold]).astype(np.float64)

    def predict(self, signals: Any) -> float:
        """Return the estimated accuracy of a batch."""
        return float(expit(self._predict(_features(signals))))

    def shift_of(self, signals: Any) -> float:
        """Return how far the estimated logit(accuracy) of a batch lies below that of clean data."""
        return self.clean_logit - self._predict(_features(signals))

    def interval(self, signals: Any, level: float = LEVEL) -> Interval:
        """Return the estimated accuracy of a batch and its bounds, rounded outwards to whole samples."""
        features, count = _features(signals), len(signals)
        predicted = self._predict(features)
        accuracy = float(expit(predicted))
        row = np.append(1.0, (features - self.centre) / self.scale)
        error = self.relative_error * max(SMALLEST_SHIFT, abs(self.clean_logit - predicted))
        variance = error**2 * (1 + row @ np.array(self.covariance) @ row) + _sampling_variance(accuracy, count)
        width = norm.ppf((1 + level) / 2) * np.sqrt(variance)
        low, high = np.floor(count * expit(predicted - width)), np.ceil(count * expit(predicted + width))
        return Interval(accuracy, float(low / count), float(high / count))

    def _predict(self, features: Any) -> float:
        scaled = (features - np.array(self.centre)) / np.array(self.scale)
        return float(features[0] + self.intercept + scaled @ np.array(self.slopes))

    def state(self) -> dict[str, Any]:
        """Return the learned values as plain data."""
        return asdict(self)

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Restore a regression from its state."""
        return cls(**state)


def _features(signals: Any) -> Any:
    return np.array([_logit(mean, len(signals)) for mean in np.mean(signals, axis=0)])


def _logit(share: float, count: int) -> float:
    """Return the logit of a share, finite at 0 and 1."""
    return float(logit((share * count + 0.5) / (count + 1)))


def _sampling_variance(accuracy: Any, count: Any) -> Any:
    """Return the variance of the logit of the accuracy of so many samples."""
    return 1 / (count * accuracy * (1 - accuracy) + 0.5)


class _Ridge(NamedTuple):
    """A weighted ridge regression of target - first feature on the standardised features."""

    intercept: float
    slopes: Any
    centre: Any
    scale: Any
    covariance: Any

    @classmethod
    def fit(cls, features: Any, target: Any, weights: Any) -> Self:
        share = weights / weights.sum()
        centre = share @ features
        scale = np.maximum(np.sqrt(share @ (features - centre) ** 2), 1e-6)
        design, above = (features - centre) / scale, target - features[:, 0]
        gram = (design.T * share) @ design + RIDGE * np.eye(design.shape[1])
        intercept = float(share @ above)
        slopes = np.linalg.solve(gram, (design.T * share) @ (above - intercept))
        covariance = np.eye(len(slopes) + 1)
        covariance[1:, 1:] = np.linalg.inv(gram)
        return cls(intercept, slopes, centre, scale, covariance / len(target))

    def predict(self, features: Any) -> Any:
        return features[:, 0] + self.intercept + ((features - self.centre) / self.scale) @ self.slopes

    def numbers(self) -> tuple[float, list[Any], list[Any], list[Any], list[Any]]:
        return (
            self.intercept, self.slopes.tolist(), self.centre.tolist(), self.scale.tolist(), self.covariance.tolist()
        )  # fmt: skip


def _held_out_error(
    domains: Sequence[Domain], features: Any, target: Any, clean_logit: float
) -> tuple[float, int]:
    """Return the relative error on kinds left out of the regression, and the number of kinds."""
    kinds, sizes = np.array([domain.kind for domain in domains]), np.array([len(domain.rows) for domain in domains])
    weights = np.array([domain.weight for domain in domains])
    shifted_kinds = sorted(set(kinds) - {CLEAN})
    squares = [PRIOR_ERROR**2] * PRIOR_KINDS
    for kind in shifted_kinds if len(shifted_kinds) > 1 else ():
        out = kinds == kind
        predicted = _Ridge.fit(features[~out], target[~out], weights[~out]).predict(features[out])
        noise = _sampling_variance(expit(target[out]), sizes[out])
        shift = np.maximum(SMALLEST_SHIFT, np.abs(clean_logit - predicted))
        squares.append(float(np.mean(np.maximum(0.0, (target[out] - predicted) ** 2 - noise) / shift**2)))
    return float(np.sqrt(np.mean(squares))), len(shifted_kinds)
