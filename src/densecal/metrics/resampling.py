"""Bootstrap resamples as counts (how often each sample was drawn), and a measure in each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import Any, TypeAlias

import numpy as np

from densecal.arrays import Array, as_array, is_torch, namespace, to_numpy
from densecal.metrics import kernel_density, ood
from densecal.metrics.inputs import read_top1
from densecal.metrics.table import METRICS, Metric
from densecal.metrics.weighted import WEIGHTED, Floats, Statistic

MetricLike: TypeAlias = str | Metric | Callable[..., float]

_BLOCK_BYTES = 1 << 26
_KEEP_BYTES = 1 << 28


class Resamples:
    """Draws of N samples with replacement, the same for the same numbers and seed.

    Measures of one object are paired: its draws are the same for every calibrator and every condition, so a difference
    or a mean of replicates is itself a bootstrap replicate.

    Parameters
    ----------
    n_samples
        Samples in the data set.
    n_resamples
        Bootstrap resamples.
    seed
        Seed of the draws.

    Examples
    --------
    >>> draws = Resamples(4, n_resamples=3)
    >>> draws.replicates("accuracy", [0.9, 0.8, 0.7, 0.6], [True, True, True, True])
    array([1., 1., 1.])
    """

    def __init__(self, n_samples: int, n_resamples: int = 1000, seed: int = 0) -> None:
        if n_samples < 1 or n_resamples < 1:
            raise ValueError(f"n_samples and n_resamples must be at least 1, got {n_samples!r} and {n_resamples!r}.")
        self.n_samples = n_samples
        self.n_resamples = n_resamples
        self.seed = seed

    def replicates(self, metric: MetricLike, probabilities: object, labels: object, **options: Any) -> Floats:
        """Return the measure in each resample.

        Parameters
        ----------
        metric
            A measure's name in :data:`~densecal.metrics.METRICS`, one of the functions, or any function of
            (probabilities, labels) that returns a number. The built-in ones take a fast path.
        probabilities, labels
            What the measure takes.
        **options
            The measure's options.
        """
        statistic = prepare(metric, probabilities, labels, options)
        samples = as_array(probabilities).shape[0]
        if samples != self.n_samples:
            raise ValueError(f"these draws are for {self.n_samples} samples, got {samples}.")
        return np.concatenate([np.asarray(statistic(block), np.float64) for block in self.blocks()])

    def blocks(self) -> Iterator[Floats]:
        """Yield the counts, float32 of shape (resamples, samples), a block of resamples at a time."""
        if self.n_resamples * self.n_samples * 4 <= _KEEP_BYTES:
            yield from self._kept
        else:
            yield from self._draw()

    @cached_property
    def _kept(self) -> list[Floats]:
        return list(self._draw())

    def _draw(self) -> Iterator[Floats]:
        generator = np.random.default_rng(self.seed)
        step = max(1, _BLOCK_BYTES // (4 * self.n_samples))
        for start in range(0, self.n_resamples, step):
            rows = min(step, self.n_resamples - start)
            block = np.empty((rows, self.n_samples), np.float32)
            for row in block:
                drawn = generator.integers(self.n_samples, size=self.n_samples, dtype=np.int32)
                row[:] = np.bincount(drawn, minlength=self.n_samples)
            yield block


def resolve(metric: MetricLike, options: dict[str, Any]) -> tuple[Callable[..., float], dict[str, Any]]:
    """Return the function and the options behind a name, a row of the table, a partial or a function.

    Examples
    --------
    >>> resolve("ece_mass", {"n_bins": 10})[1]
    {'binning': 'mass', 'n_bins': 10}
    """
    if isinstance(metric, str):
        if metric not in METRICS:
            raise ValueError(f"metric must be a function or one of {', '.join(METRICS)}; got {metric!r}.")
        metric = METRICS[metric]
    if isinstance(metric, Metric):
        return metric.function, {**metric.options, **options}
    if isinstance(metric, partial) and not metric.args:
        return resolve(metric.func, {**metric.keywords, **options})
    return metric, options


def prepare(metric: MetricLike, probabilities: object, labels: object, options: dict[str, Any]) -> Statistic:
    """Return the measure as a function of counts: fast for the built-in ones, one call a resample for others."""
    function, options = resolve(metric, options)
    if function in WEIGHTED:
        return WEIGHTED[function](probabilities, labels, **options)
    if function is kernel_density.expected_calibration_error_kde:
        probabilities, labels = read_top1(probabilities, labels)
    return _one_by_one(partial(function, **options), as_array(probabilities), as_array(labels))


def _one_by_one(function: Callable[..., float], probabilities: Array, labels: Array) -> Statistic:
    def statistic(counts: Floats) -> Floats:
        values = np.empty(counts.shape[0])
        for row, drawn in enumerate(counts):
            index = np.repeat(np.arange(drawn.shape[0]), drawn.astype(np.int64))
            values[row] = function(_take(probabilities, index), _take(labels, index))
        return values

    return statistic


def _take(array: Array, index: Floats) -> Array:
    if is_torch(array):
        return array[namespace(array).asarray(index, device=array.device)]
    return array[index]


_FROM_COUNTS: dict[Callable[..., float], Callable[[ood.ScoreCounts], float]] = {
    ood.fpr_at_95_tpr: ood.fpr_of,
    ood.detection_error: ood.detection_error_of,
    ood.auroc: ood.auroc_of,
    ood.aupr_in: ood.aupr_in_of,
    ood.aupr_out: ood.aupr_out_of,
}


def compares_domains(metric: MetricLike) -> bool:
    """Whether a measure compares two data sets, whose samples are drawn separately."""
    return resolve(metric, {})[0] in _FROM_COUNTS


def domain_replicates(
    metric: MetricLike, in_domain: object, out_of_domain: object, n_resamples: int = 1000, seed: int = 0
) -> Floats:
    """Return an out-of-domain measure in resamples of both data sets, each drawn by itself."""
    function, _ = resolve(metric, {})
    inside, outside, ranks = ood.group_scores(in_domain, out_of_domain)
    inside, outside = to_numpy(inside), to_numpy(outside)
    generator = np.random.default_rng(seed)
    values = np.empty(n_resamples)
    for row in range(n_resamples):
        drawn = [
            np.bincount(ranked[generator.integers(len(ranked), size=len(ranked))], minlength=ranks).astype(float)
            for ranked in (inside, outside)
        ]
        values[row] = _FROM_COUNTS[function](ood.ScoreCounts(*drawn))
    return values
