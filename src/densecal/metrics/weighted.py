"""The built-in measures as functions of counts: how often each sample was drawn.

Under counts a binned error or a mean is one matrix product for all resamples at once, instead of a thousand calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from densecal.arrays import Array, to_numpy
from densecal.metrics import calibration_error, proper_scores
from densecal.metrics.binning import Binning, check_bins, mass_index, width_edges, width_index
from densecal.metrics.inputs import read_distribution, read_top1, wide

Floats: TypeAlias = NDArray[Any]
Statistic: TypeAlias = Callable[[Floats], Floats]
"""From a block of counts (R, N) to the measure in each of the R resamples."""


def _mean_of(values: Array) -> Statistic:
    column = to_numpy(values).astype(np.float32)
    return lambda counts: (counts @ column) / counts.shape[1]


def _accuracy(probabilities: object, labels: object) -> Statistic:
    return _mean_of(wide(read_top1(probabilities, labels)[1]))


def _brier(probabilities: object, labels: object) -> Statistic:
    return _mean_of(proper_scores.brier_of(*read_distribution(probabilities, labels)))


def _nll(probabilities: object, labels: object) -> Statistic:
    return _mean_of(proper_scores.nll_of(*read_distribution(probabilities, labels)))


def _residuals(probabilities: object, labels: object) -> tuple[Floats, Floats]:
    """Return confidence, in its own precision, and confidence minus correctness."""
    confidence, correct = (to_numpy(array) for array in read_top1(probabilities, labels))
    return confidence, confidence.astype(np.float64) - correct


def _ece(
    probabilities: object,
    labels: object,
    n_bins: int = 15,
    binning: Binning = "width",
    norm: calibration_error.Norm = "l1",
) -> Statistic:
    # One plain call first: it refuses what the measure itself would refuse.
    calibration_error.expected_calibration_error(probabilities, labels, n_bins=n_bins, binning=binning, norm=norm)
    confidence, residual = _residuals(probabilities, labels)
    bins = check_bins(n_bins)
    sums = _width_sums(confidence, residual, bins) if binning == "width" else _mass_sums(confidence, residual, bins)

    def statistic(counts: Floats) -> Floats:
        gaps, sizes = sums(counts)
        gaps = np.abs(gaps)
        if norm == "l1":
            return np.asarray(gaps.sum(axis=1) / counts.shape[1])
        mean_gaps = gaps / np.maximum(sizes, 1)
        if norm == "l2":
            return np.asarray(np.sqrt((gaps * mean_gaps).sum(axis=1) / counts.shape[1]))
        return np.asarray(mean_gaps.max(axis=1))

    return statistic


def _width_sums(confidence: Floats, residual: Floats, n_bins: int) -> Callable[[Floats], tuple[Floats, Floats]]:
    """Return the sums of residuals and of counts in each bin as one matrix product."""
    samples = confidence.shape[0]
    member = np.zeros((samples, 2 * n_bins), np.float32)
    index = width_index(confidence, n_bins)
    member[np.arange(samples), index] = residual
    member[np.arange(samples), n_bins + index] = 1

    def sums(counts: Floats) -> tuple[Floats, Floats]:
        both = counts @ member
        return both[:, :n_bins], both[:, n_bins:]

    return sums


def _by_confidence(confidence: Floats, residual: Floats) -> Callable[[Floats], tuple[Floats, Floats]]:
    """Return counts and sums of residuals of each distinct confidence, ascending, in every resample."""
    order = np.argsort(confidence, kind="stable")
    ascending = confidence[order]
    starts = np.flatnonzero(np.concatenate([[True], ascending[1:] != ascending[:-1]]))
    sorted_residual = residual[order].astype(np.float32)

    def groups(counts: Floats) -> tuple[Floats, Floats]:
        drawn = counts[:, order]
        if starts.shape[0] == drawn.shape[1]:
            return drawn, drawn * sorted_residual
        return np.add.reduceat(drawn, starts, axis=1), np.add.reduceat(drawn * sorted_residual, starts, axis=1)

    return groups


def _mass_sums(confidence: Floats, residual: Floats, n_bins: int) -> Callable[[Floats], tuple[Floats, Floats]]:
    """Return the sums in bins of equal mass, which every resample draws anew."""
    groups = _by_confidence(confidence, residual)

    def sums(counts: Floats) -> tuple[Floats, Floats]:
        sizes, gaps = groups(counts)
        rows = counts.shape[0]
        ranks_twice = 2 * np.cumsum(sizes, axis=1, dtype=np.int64) - sizes.astype(np.int64)
        # A group that was not drawn may lie beyond the last rank; it adds nothing to any bin.
        index = np.minimum(mass_index(ranks_twice, counts.shape[1], n_bins), n_bins - 1)
        cell = (index + n_bins * np.arange(rows)[:, None]).ravel()
        return tuple(  # type: ignore[return-value]
            np.bincount(cell, weights=values.ravel(), minlength=rows * n_bins).reshape(rows, n_bins)
            for values in (gaps, sizes)
        )

    return sums


def _ks(probabilities: object, labels: object) -> Statistic:
    groups = _by_confidence(*_residuals(probabilities, labels))

    def statistic(counts: Floats) -> Floats:
        running = np.cumsum(groups(counts)[1], axis=1, dtype=np.float64)
        return np.asarray(np.abs(running).max(axis=1) / counts.shape[1])

    return statistic


def _classwise(
    probabilities: object, labels: object, n_bins: int = 15, reduction: Literal["mean", "sum"] = "mean"
) -> Statistic:
    # One plain call first: it refuses what the measure itself would refuse.
    calibration_error.classwise_calibration_error(probabilities, labels, n_bins=n_bins, reduction=reduction)
    checked, classes = (to_numpy(array) for array in read_distribution(probabilities, labels))
    samples, n_classes = checked.shape
    residual = checked.astype(np.float32)
    residual[np.arange(samples), classes] -= 1

    # Few probabilities lie above the first bin: they make a sparse matrix, and what is left is the first bin's.
    row, column = np.nonzero(checked > width_edges(n_bins, checked)[1])
    cell = column * n_bins + width_index(checked[row, column], n_bins)
    used, cell = np.unique(cell, return_inverse=True)
    upper = sparse.csr_array((residual[row, column], (cell, row)), shape=(used.shape[0], samples))
    residual[row, column] = 0

    def statistic(counts: Floats) -> Floats:
        total = np.abs(counts @ residual).sum(axis=1) + np.abs(upper @ counts.T).sum(axis=0)
        return np.asarray(total / samples / (n_classes if reduction == "mean" else 1))

    return statistic


WEIGHTED: dict[Callable[..., float], Callable[..., Statistic]] = {
    proper_scores.accuracy: _accuracy,
    proper_scores.brier_score: _brier,
    proper_scores.negative_log_likelihood: _nll,
    calibration_error.expected_calibration_error: _ece,
    calibration_error.classwise_calibration_error: _classwise,
    calibration_error.kolmogorov_smirnov_error: _ks,
}
"""From a measure to what prepares it: (probabilities, labels, options) -> statistic of counts."""
