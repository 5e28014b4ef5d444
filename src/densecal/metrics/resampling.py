"""Bootstrap resamples, stored as counts of each sample, and metrics in each resample."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from numpy.typing import NDArray

from densecal.arrays import ArrayLike, as_array, row_blocks, to_numpy
from densecal.metrics import ood
from densecal.metrics.table import METRICS, OOD_METRICS, Metric

if TYPE_CHECKING:
    from densecal.metrics.resampled_metrics import Floats

MetricLike: TypeAlias = str | Metric | Callable[..., float]

N_RESAMPLES = 300
"""Default number of bootstrap resamples."""
LEVEL = 0.95
"""Default coverage of bootstrap intervals."""
_BLOCK_BYTES = 1 << 25
_KEEP_BYTES = 1 << 26


def resolve(metric: MetricLike, options: Mapping[str, object]) -> Metric:
    """Return the metric of a name, a Metric, a partial or a function; the largest value of a new function is NaN."""
    if not callable(metric):
        if metric not in [*METRICS]:
            raise ValueError(f"metric must be a function or one of {', '.join(METRICS)}, got {metric!r}.")
        metric = METRICS[metric]
    if isinstance(metric, partial) and not metric.args:
        return resolve(metric.func, {**metric.keywords, **options})
    if not isinstance(metric, Metric):
        known = [row for row in METRICS.values() if row.function is metric]
        own = Metric("", "", metric, "", largest=math.nan)
        metric = replace(max(known, key=lambda row: row.largest, default=own), options={})
    return replace(metric, options={**metric.options, **options})


class Resamples:
    """Resamples with replacement, which depend only on the number of samples and the seed.

    Replicates of one object are paired: all calibrators and conditions share the resamples, so a difference or a mean
    of replicates is itself a bootstrap replicate. The first resamples do not depend on their number.

    Examples
    --------
    >>> draws = Resamples(4, n_resamples=3)
    >>> draws.replicates("accuracy", [0.9, 0.8, 0.7, 0.6], [True, True, True, True])
    array([1., 1., 1.])
    """

    def __init__(self, n_samples: int, n_resamples: int = N_RESAMPLES, seed: int = 0) -> None:
        if n_samples < 1 or n_resamples < 1:
            raise ValueError(f"n_samples and n_resamples must be at least 1, got {n_samples!r} and {n_resamples!r}.")
        self.n_samples = n_samples
        self.n_resamples = n_resamples
        self.seed = seed

    def replicates(
        self, metric: MetricLike, probabilities: ArrayLike, labels: ArrayLike | None, **options: object
    ) -> NDArray[np.float64]:
        """Return the metric in each resample; the arguments are those of :func:`bootstrap_interval`.

        Built-in metrics are computed for all resamples at once.
        """
        # Imported here because it imports SciPy, the slowest import of the metrics.
        from densecal.metrics.resampled_metrics import prepare

        statistic = prepare(resolve(metric, options), probabilities, labels)
        samples = as_array(probabilities).shape[0]
        if samples != self.n_samples:
            raise ValueError(f"these resamples are for {self.n_samples} samples, got {samples}.")
        return np.concatenate([np.asarray(statistic(block), np.float64) for block in self.blocks()])

    def blocks(self) -> Iterator[Floats]:
        """Yield blocks of counts, float32 arrays of shape (n_resamples, n_samples)."""
        kept = self.n_resamples * self.n_samples <= _KEEP_BYTES
        for block in self._kept if kept else self._draw():
            yield block.astype(np.float32)

    @cached_property
    def _kept(self) -> list[NDArray[np.uint8]]:
        return list(self._draw())

    def _draw(self) -> Iterator[NDArray[np.uint8]]:
        """Yield counts as bytes: that a sample is drawn more than 255 times has a probability below 1e-500."""
        generator = np.random.default_rng(self.seed)
        for rows in row_blocks(self.n_resamples, 4 * self.n_samples, _BLOCK_BYTES):
            block = np.empty((rows.stop - rows.start, self.n_samples), np.uint8)
            for row in block:
                drawn = generator.integers(self.n_samples, size=self.n_samples, dtype=np.int32)
                row[:] = np.bincount(drawn, minlength=self.n_samples)
            yield block


def ood_replicates(
    in_domain: object, out_of_domain: object, *, n_resamples: int = N_RESAMPLES, seed: int = 0
) -> dict[str, NDArray[np.float64]]:
    """Return the out-of-domain metrics by name, in independent resamples of both data sets."""
    *ranked, n_ranks = ood.rank_scores(in_domain, out_of_domain)
    both = [to_numpy(ranks) for ranks in ranked]
    generator = np.random.default_rng(seed)
    values = np.empty((n_resamples, len(OOD_METRICS)))
    for row in range(n_resamples):
        drawn = [ranks[generator.integers(len(ranks), size=len(ranks))] for ranks in both]
        counts = (np.bincount(one, minlength=n_ranks).astype(float) for one in drawn)
        values[row] = list(ood.scores_of(*counts).as_dict().values())
    return dict(zip(OOD_METRICS, values.T, strict=True))
