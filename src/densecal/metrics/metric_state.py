"""MetricState: the metrics of a stream, as sums over batches that several workers can merge."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from densecal.arrays import Array, ArrayLike, as_array, to_numpy
from densecal.metrics import kernel_density
from densecal.metrics.bootstrap import Interval
from densecal.metrics.calibration_error import (
    N_BINS,
    Binning,
    ReliabilityCurve,
    check_bins,
    curve_of_sums,
    error_of,
    mass_index,
    read_distribution,
    read_top1,
    top1_of,
    width_edges,
)
from densecal.metrics.classwise_error import classwise_of_sums, classwise_sums
from densecal.metrics.ks_error import largest_gap
from densecal.metrics.proper_scores import brier_of, nll_of
from densecal.metrics.resampling import LEVEL, N_RESAMPLES
from densecal.metrics.table import METRICS, Evaluation

TAIL_OCTAVES, TAIL_CELLS = 40, 64
"""Above 1 - 1e-4, where most confidences of an accurate classifier lie, 1 - c halves every TAIL_CELLS cells."""
_SCORES = ("brier", "nll")


class MetricState:
    """The state of all metrics over a stream of batches, of a size that does not depend on the number of samples.

    The state is a fine histogram of the confidences of wrong and of correct predictions (about 17,000 cells with their
    counts and sums), sums of the proper scores, and the bins of the class-wise error. Metrics do not depend on how the
    samples are split into batches and states. ``accuracy``, ``mean_confidence``, ``ece``, ``ece_kde``,
    ``classwise_ece``, ``brier`` and ``nll`` are the same as in memory, up to rounding. The order of the confidences
    within a cell is unknown, so ``ks`` and ``ece_mass`` differ by at most `error_bounds`.

    Parameters
    ----------
    n_bins : int, default 15
        Number of bins of the binned metrics.
    classwise : bool, default True
        Whether to keep the bins of the class-wise error, which takes as long as the other metrics together.

    Examples
    --------
    >>> first = MetricState().update([[0.75, 0.25]], [0])
    >>> second = MetricState().update([[0.25, 0.75]], [0])
    >>> row = first.merge(second).compute()
    >>> row.n_samples, row.accuracy, row.ece, row.brier
    (2, 0.5, 0.25, 0.625)
    """

    def __init__(self, *, n_bins: int = N_BINS, classwise: bool = True) -> None:
        self.n_bins = check_bins(n_bins)
        cells = len(_upper_edges(self.n_bins))
        self._counts = np.zeros((2, cells), np.int64)  # of wrong and of correct predictions
        self._sums = np.zeros((2, cells))  # of their confidences
        self._squares = np.zeros(2)  # of their confidences, over all cells
        self._scores = np.zeros((2, len(_SCORES)))  # sums and sums of squares, NaN if a batch had only confidences
        # Sums of probability minus hit, one row per class; None if they are not kept, or a batch came without them.
        self._classes = np.zeros((0, self.n_bins)) if classwise else None

    @property
    def n_samples(self) -> int:
        """The number of samples so far."""
        return int(self._counts.sum())

    def update(
        self, probabilities: ArrayLike, labels: ArrayLike | None, *, confidence: ArrayLike | None = None
    ) -> Self:
        """Add a batch; the arguments are those of `densecal.evaluate`."""
        if as_array(probabilities).ndim == 1:
            self._add_confidences(*read_top1(probabilities, labels, confidence))
            self._scores += np.nan
            self._classes = None
            return self
        return self.update_checked(*read_distribution(probabilities, labels), confidence)

    def update_checked(self, probabilities: Array, labels: Array, confidence: ArrayLike | None = None) -> Self:
        """Add a batch of valid probabilities and integer labels."""
        top1 = top1_of(probabilities, labels, confidence)
        if self._classes is not None:  # first: a batch with another number of classes must leave the state as it was
            self._add_classes(to_numpy(classwise_sums(probabilities, labels, self.n_bins)))
        self._add_confidences(*top1)
        for place, each in enumerate((brier_of, nll_of)):
            values = to_numpy(each(probabilities, labels))
            self._scores[:, place] += values.sum(), values @ values
        return self

    def _add_confidences(self, confidence: Array, correct: Array) -> None:
        values, side = to_numpy(confidence), to_numpy(correct).astype(np.int64)
        edges, cells = _upper_edges(self.n_bins), self._counts.shape[1]
        cell = np.searchsorted(edges[:-1].astype(values.dtype), values, side="left") + side * cells
        wide = values.astype(np.float64)
        self._counts += np.bincount(cell, minlength=2 * cells).reshape(2, cells)
        self._sums += np.bincount(cell, weights=wide, minlength=2 * cells).reshape(2, cells)
        self._squares += np.bincount(side, weights=wide**2, minlength=2)

    def _add_classes(self, sums: NDArray[np.float64] | None) -> None:
        if self._classes is None or sums is None:
            self._classes = None
        elif not len(self._classes):
            self._classes = sums.copy()
        elif len(sums):
            if len(sums) != len(self._classes):
                raise ValueError(f"The samples have {len(self._classes)} and {len(sums)} classes: expected one number.")
            self._classes += sums

    def merge(self, other: MetricState) -> Self:
        """Add the samples of another state, such as that of another worker."""
        if self.n_bins != other.n_bins:
            raise ValueError(f"States must have the same n_bins to be merged, got {self.n_bins} and {other.n_bins}.")
        if other.n_samples:
            self._add_classes(other._classes)
        for name in ("_counts", "_sums", "_squares", "_scores"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        return self

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the state as arrays by name, for `from_state`."""
        return {name.strip("_"): np.array(value) for name, value in vars(self).items() if value is not None}

    @classmethod
    def from_state(cls, state: Mapping[str, NDArray[Any]]) -> Self:
        """Restore a state from the arrays that `state` returned.

        Examples
        --------
        >>> MetricState.from_state(MetricState().update([0.75, 0.75], [True, False]).state()).compute().ece
        0.25
        """
        made = cls(n_bins=int(state["n_bins"]), classwise="classes" in state)
        for name in state.keys() - {"n_bins"}:
            setattr(made, f"_{name}", np.array(state[name]))
        return made

    def compute(self, *, kde: bool = True) -> Evaluation:
        """Return all metrics of the samples so far; without ``kde``, ECE-KDE is not computed."""
        self._check_not_empty()
        samples, classes = self.n_samples, self._classes
        brier, nll = (None if math.isnan(total) else float(total) / samples for total in self._scores[0])
        names = ("accuracy", "mean_confidence", "ece", "ece_mass", "ks")
        return Evaluation(
            n_samples=samples,
            **{name: self._metric(name, self._counts) for name in names},
            ece_kde=self._metric("ece_kde", self._counts) if kde else None,
            classwise_ece=None if classes is None else classwise_of_sums(classes, samples, "mean"),
            classwise_ece_sum=None if classes is None else classwise_of_sums(classes, samples, "sum"),
            brier=brier,
            nll=nll,
        )

    def reliability_curve(self, binning: Binning = "width") -> ReliabilityCurve:
        """Return the reliability curve of the samples so far, as `densecal.metrics.reliability_curve` does."""
        self._check_not_empty()
        return self._curve(self._counts, binning)

    def error_bounds(self) -> dict[str, float]:
        """Return how far ``ks`` and ``ece_mass`` can be from their values in memory.

        Examples
        --------
        >>> MetricState().update([0.9, 0.6], [True, False]).error_bounds()["ks"]
        0.3
        """
        self._check_not_empty()
        # Within a cell, the cumulative gap rises by the confidences of the wrong predictions and falls by those of the
        # correct ones; their order is unknown. A boundary of an equal-mass bin moves a cell between two bins.
        rises, falls = self._sums[0], self._counts[1] - self._sums[1]
        hidden = np.maximum(rises, falls) / self.n_samples
        split = np.sort(hidden)[::-1][: self.n_bins - 1]
        return {"ks": float(hidden.max()), "ece_mass": float(2 * split.sum())}

    def interval(
        self, metric: str = "ece", *, n_resamples: int = N_RESAMPLES, level: float = LEVEL, seed: int = 0
    ) -> Interval:
        """Return the bootstrap interval of a metric that is not class-wise; the arguments are as in memory.

        In a resample, the number of samples in a cell is a Poisson variable with its count as mean, which approximates
        the bootstrap of many samples. The proper scores are sums of many terms, so they are drawn from a normal
        distribution. The interval depends on the merged state and the seed only.

        Examples
        --------
        >>> print(MetricState().update([0.9] * 200, [True] * 180 + [False] * 20).interval("accuracy"))
        0.9000 [0.8616, 0.9439]
        """
        self._check_not_empty()
        generator, estimate = np.random.default_rng(seed), self.compute(kde=metric == "ece_kde").as_dict().get(metric)
        if estimate is None or metric.startswith("classwise"):
            raise ValueError(f"metric must be one that the state has, but not class-wise, got {metric!r}.")
        if metric in _SCORES:
            total, squares = self._scores[:, _SCORES.index(metric)] / self.n_samples
            drawn = generator.normal(estimate, math.sqrt(max(squares - total**2, 0) / self.n_samples), n_resamples)
        else:
            resamples = (generator.poisson(self._counts) for _ in range(n_resamples))
            drawn = np.array([self._metric(metric, counts) for counts in resamples if counts.any()])
        found = Interval.around(float(estimate), drawn, level)
        return found.within(0.0, METRICS[metric].largest if metric in METRICS else 1.0)

    def _check_not_empty(self) -> None:
        if not self.n_samples:
            raise ValueError("The state has no samples yet: call update(probabilities, labels) first.")

    def _metric(self, name: str, counts: NDArray[np.int64]) -> float:
        """Return a metric of the confidence, from the numbers of wrong and of correct predictions in each cell."""
        samples = int(counts.sum())
        if name == "accuracy":
            return float(counts[1].sum() / samples)
        sums = self._means() * counts
        if name == "mean_confidence":
            return float(sums.sum() / samples)
        if name == "ks":
            return largest_gap(sums.sum(axis=0) - counts[1]) / samples
        if name == "ece_kde":
            return self._kde(counts)
        return error_of(self._curve(counts, "width" if name == "ece" else "mass"))

    def _means(self) -> NDArray[np.float64]:
        return np.asarray(self._sums / np.maximum(self._counts, 1))

    def _curve(self, counts: NDArray[np.int64], binning: Binning) -> ReliabilityCurve:
        uppers = _upper_edges(self.n_bins)
        if binning == "width":
            edges = width_edges(self.n_bins, uppers)
            index = np.searchsorted(edges[1:-1], uppers, side="left")
        else:
            # Empty cells above all samples have the rank of the next one.
            index = np.minimum(mass_index(counts.sum(axis=0), self.n_bins), self.n_bins - 1)
            edges = np.array([0.0, *uppers[np.searchsorted(index, np.arange(self.n_bins - 1), side="right") - 1], 1.0])
        confidence = (self._means() * counts).sum(axis=0)
        bins = [np.bincount(index, weights, self.n_bins) for weights in (counts.sum(axis=0), confidence, counts[1])]
        return curve_of_sums(edges, bins[0].astype(np.int64), *bins[1:])

    def _kde(self, counts: NDArray[np.int64]) -> float:
        means = self._means()
        # No cell holds a grid point, and values are split linearly between two of them: the mean stands for the cell.
        wrong, hits = (kernel_density.mirrored_masses(means[side], counts[side]) for side in (0, 1))
        rows = slice(1, 2) if self._counts[1].any() else slice(2)
        size = self._counts[rows].sum()
        mean, square = self._sums[rows].sum() / size, self._squares[rows].sum() / size
        bandwidth = kernel_density.choose_bandwidth(math.sqrt(max(square - mean**2, 0.0)), self.n_samples)
        return kernel_density.kde_of_masses(wrong + hits, hits, bandwidth, int(counts.sum()))


@lru_cache
def _upper_edges(n_bins: int) -> NDArray[np.float64]:
    """Return the upper edges of the cells, open below and closed above.

    No cell reaches beyond a bin of equal width, nor beyond a point of the grid of ECE-KDE, mirrored or not, so these
    metrics do not depend on where in its cell a confidence lies.
    """
    grid = kernel_density.GRID
    tail = 1 - 2.0 ** (-np.arange(1, TAIL_OCTAVES * TAIL_CELLS) / TAIL_CELLS)
    parts = [grid, -grid[-grid < 0.5], (2 - grid)[2 - grid >= 0.5], [0.5, 1.0], np.arange(n_bins + 1) / n_bins]
    edges = np.unique(np.concatenate([*parts, tail[tail > 1 - kernel_density.GRID_STEP]]))
    edges = edges[(edges > 0) & (edges <= 1)]
    edges.setflags(write=False)
    return edges
