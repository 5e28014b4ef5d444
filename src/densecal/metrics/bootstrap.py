"""Bootstrap intervals of metrics, of differences between calibrators, and of means over conditions."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from densecal.arrays import ArrayLike, as_array
from densecal.arrays.checks import check_choice
from densecal.metrics.resampling import LEVEL, N_RESAMPLES, MetricLike, Resamples, ood_replicates, resolve
from densecal.metrics.table import METRICS, OOD_METRICS, Metric

if TYPE_CHECKING:
    from densecal.metrics.resampled_metrics import Floats

Method: TypeAlias = Literal["basic", "percentile"]
Pair: TypeAlias = tuple[ArrayLike, ArrayLike | None]
_OF_TWO_SETS = {METRICS[name].function: name for name in OOD_METRICS}


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
    def around(
        cls,
        estimate: float,
        replicates: ArrayLike,
        level: float = LEVEL,
        *,
        method: Method = "basic",
        widen: bool = True,
    ) -> Interval:
        """Return the interval of an estimate from its bootstrap replicates. Without replicates the ends are NaN.

        ``widen`` extends an interval that does not contain the estimate.
        """
        if not 0 < level < 1:
            raise ValueError(f"level must lie between 0 and 1, such as 0.95, got {level!r}.")
        check_choice("method", method, Method)
        drawn = np.asarray(replicates, np.float64)
        if drawn.size == 0 or np.isnan(estimate):
            return cls(estimate, np.nan, np.nan, level)
        low, high = (float(end) for end in np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2]))
        if method == "basic":
            low, high = 2 * estimate - high, 2 * estimate - low
        if widen:
            low, high = min(low, estimate), max(high, estimate)
        return cls(estimate, low, high, level)

    @property
    def excludes_zero(self) -> bool:
        """Whether zero lies outside the interval, as for a significant difference."""
        return self.low > 0 or self.high < 0

    def within(self, smallest: float, largest: float) -> Interval:
        """Return the interval with its ends clipped to the range of a metric."""
        low, high = (float(np.clip(end, smallest, largest)) for end in (self.low, self.high))
        return Interval(self.estimate, low, high, self.level)

    def __str__(self) -> str:
        return f"{self.estimate:.4f} [{self.low:.4f}, {self.high:.4f}]"


def bootstrap_interval(
    metric: MetricLike,
    probabilities: ArrayLike,
    labels: ArrayLike | None,
    *,
    reference: Pair | None = None,
    n_resamples: int = N_RESAMPLES,
    level: float = LEVEL,
    seed: int = 0,
    method: Method = "basic",
    **options: object,
) -> Interval:
    """Return the bootstrap interval of a metric, from resamples with replacement.

    Parameters
    ----------
    metric
        A name in :data:`~densecal.metrics.METRICS`, a metric function, or any function of (probabilities, labels) that
        returns a number.
    probabilities, labels
        The arguments of the metric: (probabilities, labels), (confidence, correct), or (in_domain, out_of_domain). The
        last two are resampled separately.
    reference
        The arguments for another calibrator, for the same samples in the same order. The interval is then that of the
        paired difference.
    n_resamples, level, seed
        Number of resamples, nominal coverage, and seed of the resamples.
    method
        ``"basic"``: quantiles of the resamples, reflected about the estimate and clipped to the range of the metric.
        This corrects the upward bias of calibration errors, which is larger in a resample. If the classifier is well
        calibrated, the interval can lie below the estimate, which is then mostly noise. ``"percentile"``: the quantiles
        of the resamples.
    **options
        Options of the metric, such as ``n_bins=10``.

    Examples
    --------
    >>> bootstrap_interval("accuracy", [0.9, 0.8, 0.7, 0.6], [True] * 4, n_resamples=20)
    Interval(estimate=1.0, low=1.0, high=1.0, level=0.95)
    >>> sharp, flat = ([[0.9, 0.1], [0.9, 0.1]], [0, 0]), ([[0.6, 0.4], [0.6, 0.4]], [0, 0])
    >>> bootstrap_interval("brier", *sharp, reference=flat, n_resamples=10).excludes_zero
    True
    """
    pairs, references = [(probabilities, labels)], None if reference is None else [reference]
    draws = Resamples(as_array(probabilities).shape[0], n_resamples, seed)
    return _interval(resolve(metric, options), pairs, references, group_weights([0]), draws, level, method)


def macro_bootstrap(
    metric: MetricLike,
    conditions: Sequence[Pair],
    *,
    reference: Sequence[Pair] | None = None,
    groups: Sequence[Hashable] | None = None,
    n_resamples: int = N_RESAMPLES,
    level: float = LEVEL,
    seed: int = 0,
    method: Method = "basic",
    **options: object,
) -> Interval:
    """Return the bootstrap interval of the mean of a metric over conditions of the same samples.

    All conditions share their resamples. The other arguments are as in :func:`bootstrap_interval`.

    Parameters
    ----------
    conditions
        A pair (probabilities, labels) or (confidence, correct) per condition, with the same samples in the same order.
    reference
        The pairs of another calibrator for the same conditions. The interval is then that of the paired difference.
    groups
        The group of each condition. The result is then the mean over groups of the mean within each group. With
        severities as groups and the clean test set as severity 0, this is the paper's ALL.

    Examples
    --------
    >>> clean, noisy = ([0.9, 0.9], [True, True]), ([0.9, 0.9], [False, False])
    >>> macro_bootstrap("accuracy", [clean, noisy, noisy], groups=[0, 1, 1], n_resamples=10).estimate
    0.5
    """
    resolved = resolve(metric, options)
    if resolved.function in _OF_TWO_SETS:
        raise ValueError("metric must be a function of (probabilities, labels), not of (in_domain, out_of_domain).")
    _check_conditions(conditions, reference, groups)
    weights = group_weights(range(len(conditions)) if groups is None else groups)
    draws = Resamples(as_array(conditions[0][0]).shape[0], n_resamples, seed)
    return _interval(resolved, conditions, reference, weights, draws, level, method)


def group_weights(groups: Sequence[Hashable]) -> NDArray[np.float64]:
    """Return the weight of each condition in the mean over groups of the mean within each group.

    Examples
    --------
    >>> group_weights([0, 1, 1])
    array([0.5 , 0.25, 0.25])
    """
    sizes = Counter(groups)
    return np.array([1 / (len(sizes) * sizes[group]) for group in groups])


def _check_conditions(
    conditions: Sequence[Pair], reference: Sequence[Pair] | None, groups: Sequence[Hashable] | None
) -> None:
    if not conditions:
        raise ValueError("conditions must hold at least one (probabilities, labels) pair, got none.")
    if reference is not None and len(reference) != len(conditions):
        raise ValueError(f"reference must hold the same {len(conditions)} conditions, got {len(reference)}.")
    if groups is not None and len(groups) != len(conditions):
        raise ValueError(f"groups must hold one group for each of {len(conditions)} conditions, got {len(groups)}.")
    sizes = {as_array(first).shape[0] for first, _ in conditions}
    if len(sizes) > 1:
        raise ValueError(f"conditions must hold the same samples in the same order, got {sorted(sizes)} samples.")


def _interval(
    metric: Metric,
    conditions: Sequence[Pair],
    reference: Sequence[Pair] | None,
    weights: Floats,
    draws: Resamples,
    level: float,
    method: Method,
) -> Interval:
    """Return the interval of the weighted mean over conditions, or of its difference from that of the reference."""

    def mean(pairs: Sequence[Pair]) -> Floats:
        return np.asarray(weights @ np.stack([_resampled(metric, pair, draws) for pair in pairs]))

    values = mean(conditions) if reference is None else mean(conditions) - mean(reference)
    found = Interval.around(float(values[0]), values[1:], level, method=method, widen=False)
    is_bounded = reference is None and not math.isnan(metric.largest)
    return found.within(0.0, metric.largest) if is_bounded else found


def _resampled(metric: Metric, pair: Pair, draws: Resamples) -> Floats:
    """Return the metric, followed by its value in each resample."""
    if metric.function in _OF_TWO_SETS:
        both = ood_replicates(*pair, n_resamples=draws.n_resamples, seed=draws.seed)
        drawn = both[_OF_TWO_SETS[metric.function]]
    else:
        drawn = draws.replicates(metric, *pair)
    return np.array([metric(*pair), *drawn])
