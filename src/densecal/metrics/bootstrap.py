"""Bootstrap intervals for any measure, for differences of two calibrators, and for means over conditions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from densecal.arrays import as_array
from densecal.metrics.resampling import (
    MetricLike,
    Resamples,
    compares_domains,
    domain_replicates,
    resolve,
)
from densecal.metrics.table import METRICS
from densecal.metrics.weighted import Floats

Method = Literal["basic", "percentile"]
Condition = tuple[object, object]


@dataclass(frozen=True)
class Interval:
    """An estimate and its bootstrap interval.

    Examples
    --------
    >>> print(Interval(0.05, 0.04, 0.06, 0.95))
    0.0500 [0.0400, 0.0600]
    >>> print(Interval(0.008, -0.005, 0.008, 0.95).within(0, 1))
    0.0080 [0.0000, 0.0080]
    >>> print(Interval.around(0.5, [0.4, 0.5, 0.6], level=0.95))
    0.5000 [0.4050, 0.5950]
    """

    estimate: float
    low: float
    high: float
    level: float

    @classmethod
    def around(cls, estimate: float, resampled: Any, level: float) -> Interval:
        """Return the mirrored (basic) interval, widened where it would leave the estimate itself out.

        Resampling adds its own noise to a calibration error, which mirroring takes off again; and a reader expects the
        estimate in its interval. Without resamples the ends are NaN.
        """
        if np.size(resampled) == 0 or np.isnan(estimate):
            return cls(estimate, np.nan, np.nan, level)
        tail = (1 - level) / 2
        low, high = (2 * estimate - float(end) for end in np.quantile(resampled, [1 - tail, tail]))
        return cls(estimate, min(low, estimate), max(high, estimate), level)

    @property
    def excludes_zero(self) -> bool:
        """Whether zero lies outside, as for a difference that the resamples agree on."""
        return self.low > 0 or self.high < 0

    def within(self, smallest: float, largest: float) -> Interval:
        """Return the interval with its ends cut to a measure's range."""
        low, high = (float(np.clip(end, smallest, largest)) for end in (self.low, self.high))
        return Interval(self.estimate, low, high, self.level)

    def __str__(self) -> str:
        return f"{self.estimate:.4f} [{self.low:.4f}, {self.high:.4f}]"


def bootstrap_interval(
    metric: MetricLike,
    probabilities: object,
    labels: object,
    *,
    n_resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    method: Method = "basic",
    **options: Any,
) -> Interval:
    """Bootstrap interval of a measure: samples drawn with replacement.

    Parameters
    ----------
    metric
        A measure's name in :data:`~densecal.metrics.METRICS`, one of the functions, or any function of
        (probabilities, labels) that returns a number.
    probabilities, labels
        What the measure takes: (probabilities, labels), (confidence, correct), or (in_domain, out_of_domain), whose
        samples are then drawn separately.
    n_resamples, seed
        How many resamples, and the seed of the draws.
    level
        Nominal coverage.
    method
        ``"basic"``: quantiles of the resamples mirrored at the estimate, within the measure's range. A calibration
        error is biased upwards, and more so in a resample, which this corrects; with little miscalibration it can lie
        below the estimate, which then says that much of the estimate is noise.
        ``"percentile"``: the quantiles themselves.
    **options
        The measure's options, as ``n_bins=10``.

    Examples
    --------
    >>> bootstrap_interval("accuracy", [0.9, 0.8, 0.7, 0.6], [True] * 4, n_resamples=20)
    Interval(estimate=1.0, low=1.0, high=1.0, level=0.95)
    """
    function, options = resolve(metric, options)
    estimate = float(function(probabilities, labels, **options))
    values = _replicates(function, probabilities, labels, n_resamples, seed, options)
    return _bounded(_interval(estimate, values, level, method), metric)


def paired_bootstrap(
    metric: MetricLike,
    probabilities_a: object,
    probabilities_b: object,
    labels: object,
    *,
    labels_b: object = None,
    n_resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    method: Method = "basic",
    **options: Any,
) -> Interval:
    """Interval of the difference A - B between two calibrators on the same samples, drawn together.

    Parameters
    ----------
    metric
        A measure's name, one of the functions, or any function of (probabilities, labels).
    probabilities_a, probabilities_b
        What the two calibrators said of the same samples in the same order.
    labels
        The labels of both, or ``correct`` beside 1-d confidences.
    labels_b
        The second argument for B where it differs, as ``correct`` does when a method changes predictions.
    n_resamples, level, seed, method, **options
        As in :func:`bootstrap_interval`.

    Examples
    --------
    >>> a, b = [[0.9, 0.1], [0.9, 0.1]], [[0.6, 0.4], [0.6, 0.4]]
    >>> paired_bootstrap("brier", a, b, [0, 0], n_resamples=10).excludes_zero
    True
    """
    function, options = resolve(metric, options)
    second = labels if labels_b is None else labels_b
    estimate = float(function(probabilities_a, labels, **options)) - float(function(probabilities_b, second, **options))
    # The same seed draws the same samples for both.
    difference = _replicates(function, probabilities_a, labels, n_resamples, seed, options) - _replicates(
        function, probabilities_b, second, n_resamples, seed, options
    )
    return _interval(estimate, difference, level, method)


def macro_bootstrap(
    metric: MetricLike,
    conditions: Sequence[Condition],
    *,
    groups: Sequence[Hashable] | None = None,
    n_resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    method: Method = "basic",
    resamples: Resamples | None = None,
    **options: Any,
) -> Interval:
    """Interval of a measure's mean over conditions of the same test images, which are drawn once for all conditions.

    Parameters
    ----------
    metric
        A measure's name, one of the functions, or any function of (probabilities, labels).
    conditions
        A pair (probabilities, labels) or (confidence, correct) for each condition; sample ``i`` is the same image in
        all of them.
    groups
        Each condition's group. The mean is then over groups of the mean within a group: with severities as groups, and
        the clean test set as severity 0, that is the paper's ALL.
    n_resamples, level, seed, method, **options
        As in :func:`bootstrap_interval`.
    resamples
        Draws to use again, in place of ``n_resamples`` and ``seed``.

    Examples
    --------
    >>> clean, noisy = ([0.9, 0.9], [True, True]), ([0.9, 0.9], [False, False])
    >>> macro_bootstrap("accuracy", [clean, noisy, noisy], groups=[0, 1, 1], n_resamples=10).estimate
    0.5
    """
    function, options = resolve(metric, options)
    estimate, values = _macro(function, conditions, groups, resamples, n_resamples, seed, options)
    return _bounded(_interval(estimate, values, level, method), metric)


def paired_macro_bootstrap(
    metric: MetricLike,
    conditions_a: Sequence[Condition],
    conditions_b: Sequence[Condition],
    *,
    groups: Sequence[Hashable] | None = None,
    n_resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    method: Method = "basic",
    resamples: Resamples | None = None,
    **options: Any,
) -> Interval:
    """Interval of the difference A - B of two calibrators' means over the same conditions.

    Parameters
    ----------
    metric
        A measure's name, one of the functions, or any function of (probabilities, labels).
    conditions_a, conditions_b
        Each calibrator's pairs, condition by condition in the same order.
    groups, n_resamples, level, seed, method, resamples, **options
        As in :func:`macro_bootstrap`.

    Examples
    --------
    >>> a, b = ([0.9, 0.9], [True, True]), ([0.8, 0.8], [True, True])
    >>> print(paired_macro_bootstrap("ece", [a, a], [b, b], n_resamples=10))
    -0.1000 [-0.1000, -0.1000]
    """
    if len(conditions_a) != len(conditions_b):
        raise ValueError(
            "conditions_a and conditions_b must be the same conditions, got "
            f"{len(conditions_a)} and {len(conditions_b)}."
        )
    function, options = resolve(metric, options)
    draws = resamples or _draws(conditions_a, n_resamples, seed)
    estimate_a, values_a = _macro(function, conditions_a, groups, draws, n_resamples, seed, options)
    estimate_b, values_b = _macro(function, conditions_b, groups, draws, n_resamples, seed, options)
    return _interval(estimate_a - estimate_b, values_a - values_b, level, method)


def group_weights(groups: Sequence[Hashable]) -> Floats:
    """Return each condition's weight in a mean over groups of the mean within a group.

    Examples
    --------
    >>> group_weights([0, 1, 1])
    array([0.5 , 0.25, 0.25])
    """
    sizes = Counter(groups)
    return np.array([1 / (len(sizes) * sizes[group]) for group in groups])


def _macro(
    function: Callable[..., float],
    conditions: Sequence[Condition],
    groups: Sequence[Hashable] | None,
    resamples: Resamples | None,
    n_resamples: int,
    seed: int,
    options: dict[str, Any],
) -> tuple[float, Floats]:
    """Return the mean over conditions, and that mean in every resample."""
    if not conditions:
        raise ValueError("conditions must hold at least one (probabilities, labels) pair, got none.")
    if compares_domains(function):
        raise ValueError("a mean over conditions needs a measure of (probabilities, labels), not one of two data sets.")
    if groups is not None and len(groups) != len(conditions):
        raise ValueError(f"groups must name {len(conditions)} conditions' groups, got {len(groups)}.")
    weights = group_weights(range(len(conditions)) if groups is None else groups)
    draws = resamples or _draws(conditions, n_resamples, seed)
    estimate, values = 0.0, np.zeros(draws.n_resamples)
    for weight, (probabilities, labels) in zip(weights, conditions, strict=True):
        estimate += weight * float(function(probabilities, labels, **options))
        values += weight * draws.replicates(function, probabilities, labels, **options)
    return float(estimate), values


def _draws(conditions: Sequence[Condition], n_resamples: int, seed: int) -> Resamples:
    sizes = {as_array(first).shape[0] for first, _ in conditions}
    if len(sizes) != 1:
        raise ValueError(
            f"conditions must hold the same test images, in the same order; got sets of {sorted(sizes)} samples."
        )
    return Resamples(sizes.pop(), n_resamples, seed)


def _replicates(
    function: Callable[..., float], first: object, second: object, n_resamples: int, seed: int, options: dict[str, Any]
) -> Floats:
    if compares_domains(function):
        return domain_replicates(function, first, second, n_resamples, seed)
    return Resamples(as_array(first).shape[0], n_resamples, seed).replicates(function, first, second, **options)


def _interval(estimate: float, values: Floats, level: float, method: str) -> Interval:
    if not 0 < level < 1:
        raise ValueError(f"level must lie between 0 and 1, as 0.95 does; got {level!r}.")
    low, high = (float(quantile) for quantile in np.quantile(values, [(1 - level) / 2, (1 + level) / 2]))
    if method == "basic":
        low, high = 2 * estimate - high, 2 * estimate - low
    elif method != "percentile":
        raise ValueError(f'method must be "basic" or "percentile", got {method!r}.')
    return Interval(estimate, low, high, level)


def _bounded(interval: Interval, metric: MetricLike) -> Interval:
    """Keep a built-in measure's interval within the measure's range."""
    function, _ = resolve(metric, {})
    known = [row for row in METRICS.values() if row.function is function]
    if not known:
        return interval
    return interval.within(0.0, max(row.largest for row in known))
