"""A regression of the accuracy of a batch on its confidences, learned over shifted domains.

For every domain, logit(accuracy) is regressed on two features of the domain: logit(mean confidence after the shift fit)
and the mean entropy after temperature scaling. On the clean data, whose accuracy is known, the regression is exact. The
ridge penalty shrinks it towards logit(accuracy) = logit(mean confidence) + a constant, that of the clean data, because
a batch may be unlike every domain. Both features are means over samples, and neither depends on the class balance of
the predictions. ``reproduction/studies/estimation.py`` determined the features and the constants.

The difference from logit(mean confidence) is the correction. Its ``belief`` is the fraction of it that is applied: 1
for a batch at most as far from clean data as the domains in mean square, and beyond in inverse proportion to the
squared distance, as in Mallows' robust regression. The rest is ``withheld`` and widens the interval. The leverage
measures how unlike the domains a batch is, and widens the interval, too. If the regression predicts a higher accuracy
than that of clean data, the leverage determines the ``doubt``: how much of the difference is subtracted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit, logit, ndtri

from densecal.errors import ArtefactError
from densecal.estimation.domains import Domain, make_domains, rows_by_domain
from densecal.estimation.moments import Moments
from densecal.estimation.ridge import Ridge

LEVEL = 0.95
"""Probability that an interval contains the accuracy."""
PRIOR_ERROR, PRIOR_KINDS = 0.1, 5
"""Prior of the relative error on held-out kinds; it has the weight of this many kinds."""
SMALLEST_ERROR = 0.05
"""Error of the regression on the logit scale that does not depend on the shift."""
SMALLEST_SHIFT = 0.12
"""Added to the squared shift of a kind, so that kinds with hardly any shift do not count as a large error."""
LESS_HARM = 0.6
"""The error above the estimate relative to that below: an unknown shift is rarely less harmful than estimated."""
EXTRAPOLATION_ERROR = 2.0
"""Error on the logit scale per unit of ``extrapolation`` above 1."""
LEARNING_VARIANCE = 10.0
"""Variance of the regression with one clean validation sample, in addition to that of the clean accuracy."""
MOST_SAMPLES = 1e6
"""A mean confidence counts as that of this many samples, so it is hardly shrunk to one half: unlike a fraction of
correct predictions, it is not 0 or 1 by chance."""
SPREAD_SAMPLES = 30
"""The variance in a batch is pooled with that of this many clean samples, as a few samples do not show their own."""


class Interval(NamedTuple):
    """An estimated accuracy and its bounds."""

    accuracy: float
    low: float
    high: float


@dataclass(frozen=True)
class AccuracyModel:
    """The fitted regression of the accuracy, as plain data.

    The values of a `Ridge` are followed by those of the clean data: logit(accuracy) and its sampling variance, and the
    variance of the contribution of one sample to the predicted logit(accuracy).

    Attributes
    ----------
    relative_error : float
        Standard error on unknown kinds of shift, as a fraction of the difference between logit(accuracy) and that of
        clean data.
    nearest, farthest : lists of float
        The lowest and the largest mean drift of a shifted domain in each layer, in standard deviations of clean inputs.
    """

    intercept: float
    slopes: list[float]
    centre: list[float]
    scale: list[float]
    covariance: list[list[float]]
    clean: list[float]
    reach: list[list[float]]
    clean_logit: float
    clean_variance: float
    clean_spread: float
    relative_error: float
    n_clean: int
    n_domains: int
    n_kinds: int
    nearest: list[float]
    farthest: list[float]

    @classmethod
    def learn(cls, signals: Any, correct: Any, names: Sequence[str], drift: Any) -> Self:
        """Learn the regression from clean samples, followed by shifted ones with the names of their domains.

        ``signals`` holds the predictors of `SampleSignals`, ``correct`` whether the predicted class is the label, and
        ``drift`` that of the shifted samples.
        """
        n_clean = len(correct) - len(names)
        domains = make_domains(names, n_clean)
        # Both are shrunk to one half in the same way, so that small domains do not bias the regression.
        features = np.array([_features(np.mean(signals[one.rows], axis=0), len(one.rows)) for one in domains])
        target = np.array([_logit(np.mean(correct[one.rows]), len(one.rows)) for one in domains])
        clean_signals, clean_accuracy = signals[:n_clean], np.mean(correct[:n_clean])
        clean, clean_logit = _features(np.mean(clean_signals, axis=0)), _logit(clean_accuracy, n_clean)
        fit = Ridge.fit(domains, features, target, clean, clean_logit)
        error, n_kinds = _held_out_error(domains, features, target, fit)
        drifts = [drift[rows].mean(axis=0) for rows in rows_by_domain(names)]
        arrays = {name: np.asarray(value).tolist() for name, value in fit._asdict().items()}
        return cls(
            **arrays,
            clean_logit=clean_logit,
            clean_variance=float(_sampling_variance(clean_accuracy, n_clean)),
            clean_spread=float(np.var(clean_signals @ fit.gradients(clean))),
            relative_error=error,
            n_clean=n_clean,
            n_domains=sum(not domain.is_mixture for domain in domains),
            n_kinds=n_kinds,
            nearest=np.min(drifts, axis=0).tolist(),
            farthest=np.max(drifts, axis=0).tolist(),
        )

    def predict(self, signals: Any, doubt: float = 0.0) -> float:
        """Return the estimated accuracy of a batch, or of a part of a batch with this ``doubt``."""
        return float(expit(self._ridge.predict(_batch_features(signals)) - doubt))

    def shift_of(self, signals: Any) -> float:
        """Return how far the predicted logit(accuracy) of a batch lies below that of clean data."""
        return float(self.clean_logit - self._ridge.predict(_batch_features(signals)))

    def chance_of(self, n_samples: int) -> float:
        """Return the standard error of `shift_of` for a clean batch of this size."""
        return float(np.sqrt(self.clean_spread * (1 / n_samples + 1 / self.n_clean)))

    def doubt_of(self, signals: Any) -> float:
        """Return how much is subtracted from a predicted logit(accuracy) above that of clean data.

        It grows with the leverage: half of the difference at a leverage of 2, the number of features, which without the
        penalty is the mean over the domains.
        """
        features = _batch_features(signals)
        leverage = float(self._ridge.leverage(features))
        gain = max(0.0, float(self._ridge.predict(features)) - self.clean_logit)
        return gain * leverage / (leverage + len(self.slopes))

    def interval(self, signals: Any, extrapolation: float = 0.0, level: float = LEVEL) -> Interval:
        """Return the estimated accuracy of a batch and its bounds, rounded outwards to whole samples.

        The interval is wider below the estimate, and widens with an ``extrapolation`` above 1.
        """
        features, count, doubt = _batch_features(signals), len(signals), self.doubt_of(signals)
        predicted = float(self._ridge.predict(features)) - doubt
        accuracy = float(expit(predicted))
        few_kinds = 1 + (1 + float(self._ridge.leverage(features))) / self.n_kinds
        unseen = few_kinds * (self.relative_error * (self.clean_logit - predicted)) ** 2
        other = few_kinds * (SMALLEST_ERROR**2 + LEARNING_VARIANCE / self.n_clean) + self.clean_variance
        other += self._ridge.withheld(features) ** 2 + doubt**2 + _sampling_variance(accuracy, count)
        other += (EXTRAPOLATION_ERROR * max(0.0, extrapolation - 1)) ** 2
        below, above = np.sqrt([other + unseen, other + LESS_HARM**2 * unseen]) * ndtri((1 + level) / 2)
        low, high = np.floor(count * expit(predicted - below)), np.ceil(count * expit(predicted + above))
        return Interval(accuracy, float(low / count), float(high / count))

    def upper_bound(self, moments: Moments, level: float) -> float:
        """Return an upper bound of the estimate that a longer stream of such samples would have.

        It allows for chance in the batch and in the clean data, not for the error on unknown kinds of shift. On clean
        data it lies below the accuracy with probability 1 - ``level``.
        """
        features, count = _features(moments.means), moments.n_samples
        of_batch = moments.variance(self._ridge.gradients(features))
        spread = (count * of_batch + SPREAD_SAMPLES * self.clean_spread) / (count + SPREAD_SAMPLES)
        predicted = float(self._ridge.predict(features))
        return float(expit(predicted + self._margin(predicted, spread, count, level)))

    def bound_reaches(self, limit: float, count: int, level: float) -> float:
        """Return roughly below which estimate of ``count`` clean samples the upper bound lies below a limit."""
        most = float(logit(limit))

        def gap(predicted: float) -> float:
            return predicted + self._margin(predicted, self.clean_spread, count, level) - most

        # The margin is largest at the accuracy of clean data.
        least = most - self._margin(self.clean_logit, self.clean_spread, count, level)
        return float(expit(brentq(gap, least - 1e-6, most)))

    def _margin(self, predicted: float, spread: float, count: int, level: float) -> float:
        """Return the margin for chance in the samples and in the clean data, to add to a predicted logit(accuracy).

        Chance in the clean data changes the accuracy, not its logit, by the same amount at every accuracy.
        """
        clean = expit(self.clean_logit)
        # Below one half the margin would rise again, and a worse window could fail to raise an alarm.
        here = max(expit(predicted), min(clean, 0.5))
        per_logit = min(1.0, clean * (1 - clean) / max(here * (1 - here), 1e-12))
        return float(ndtri(level) * np.sqrt(spread / count + self.clean_variance * per_logit**2))

    def extrapolation(self, drift: Any) -> float:
        """Return the drift of samples relative to the farthest domain, in the layer where this ratio is largest.

        Above 1, they are farther away than every domain, or nearer: features of dark or blank images can be all alike
        and near a centre. Two standard errors are allowed for chance, and a drift of one standard deviation is never
        an extrapolation.
        """
        mean, chance = np.mean(drift, axis=0), 2 / np.sqrt(len(drift))
        ratios = [(mean - chance) / np.maximum(self.farthest, 1.0), (mean + chance) / np.minimum(self.nearest, -1.0)]
        return float(np.max(ratios, initial=0.0))

    @cached_property
    def _ridge(self) -> Ridge:
        return Ridge(*(np.array(getattr(self, name)) for name in Ridge._fields))

    def state(self) -> dict[str, Any]:
        """Return the learned values as plain data."""
        return asdict(self)

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Self:
        """Restore a regression from its state."""
        expected = {field.name for field in fields(cls)}
        if different := sorted(expected ^ state.keys()):
            raise ArtefactError(
                "The calibrator was fitted by another version of densecal, whose accuracy model has other values: "
                f"{', '.join(different)}. Fit it again."
            )
        return cls(**state)


def _batch_features(signals: Any) -> Any:
    return _features(np.mean(signals, axis=0))


def _features(means: Any, count: float = MOST_SAMPLES) -> Any:
    """Return the features for mean signals; ``count`` shrinks the confidence to one half, like the accuracy."""
    confidence, entropy = means
    return np.array([_logit(confidence, count), entropy])


def _logit(share: float, count: float) -> float:
    """Return the logit of a share of ``count`` samples, finite at 0 and 1."""
    return float(logit((share * count + 0.5) / (count + 1)))


def _sampling_variance(accuracy: Any, count: Any) -> Any:
    """Return the variance of the logit of the accuracy of ``count`` samples."""
    return 1 / (count * accuracy * (1 - accuracy) + 0.5)


def _held_out_error(domains: Sequence[Domain], features: Any, target: Any, fit: Ridge) -> tuple[float, int]:
    """Return the relative error on kinds left out of the regression, and the number of kinds.

    Mixtures are not used: their accuracy follows from that of their parts.
    """
    plain = np.array([not domain.is_mixture for domain in domains])
    kinds, sizes = np.array([domain.kind for domain in domains]), np.array([len(domain.rows) for domain in domains])
    clean_logit = fit.predict(fit.clean)
    found, squares = sorted(set(kinds)), []
    for kind in found if len(found) > 1 else ():
        out, others = plain & (kinds == kind), plain & (kinds != kind)
        seen = [domain for domain, kept in zip(domains, others, strict=True) if kept]
        predicted = Ridge.fit(seen, features[others], target[others], fit.clean, clean_logit).predict(features[out])
        noise = _sampling_variance(expit(target[out]), sizes[out])
        error = np.mean((target[out] - predicted) ** 2 - noise) - SMALLEST_ERROR**2
        squares.append(max(0.0, error) / (np.mean((clean_logit - predicted) ** 2) + SMALLEST_SHIFT))
    return float(np.sqrt((PRIOR_KINDS * PRIOR_ERROR**2 + sum(squares)) / (PRIOR_KINDS + len(squares)))), len(found)
