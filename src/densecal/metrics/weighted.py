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
from densecal.metrics.binning import Binning, check_bins, width_edges, width_index
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
    """Return, for one resample, counts and sums of residuals of each distinct confidence, ascending."""
    order = np.argsort(confidence, kind="stable")
    ascending = confidence[order]
    starts = np.flatnonzero(np.concatenate([[True], ascending[1:] != ascending[:-1]]))
    sorted_residual = residual[order]

    def groups(drawn: Floats) -> tuple[Floats, Floats]:
        drawn = drawn[order]
        gaps = drawn * sorted_residual
        if starts.shape[0] == drawn.shape[0]:
            return drawn, gaps
        return np.add.reduceat(drawn, starts), np.add.reduceat(gaps, starts)

    return groups


def _mass_sums(confidence: Floats, residual: Floats, n_bins: int) -> Callable[[Floats], tuple[Floats, Floats]]:
    """Return the sums in bins of equal mass, which every resample draws anew."""
    groups = _by_confidence(confidence, residual)
    samples = confidence.shape[0]
    # A group is in bin b or above where twice its middle rank reaches 2 N b / n_bins: see mass_index.
    reach = -(-2 * samples * np.arange(1, n_bins) // n_bins)

    def sums(counts: Floats) -> tuple[Floats, Floats]:
        gaps, sizes = np.empty((2, counts.shape[0], n_bins))
        # Row by row: a resample's counts stay in the cache while the passes go over them.
        for row, drawn in enumerate(counts):
            group_sizes, group_gaps = groups(drawn)
            size_below = np.concatenate([[0.0], np.cumsum(group_sizes, dtype=np.float64)])
            gap_below = np.concatenate([[0.0], np.cumsum(group_gaps)])
            ends = np.searchsorted(size_below[1:] + size_below[:-1], reach, side="left")
            ends = np.concatenate([[0], ends, [group_sizes.shape[0]]])
            gaps[row], sizes[row] = np.diff(gap_below[ends]), np.diff(size_below[ends])
        return gaps, sizes

    return sums


def _ks(probabilities: object, labels: object) -> Statistic:
    groups = _by_confidence(*_residuals(probabilities, labels))

    def statistic(counts: Floats) -> Floats:
        largest = [np.abs(np.cumsum(groups(drawn)[1])).max() for drawn in counts]
        return np.asarray(np.asarray(largest) / counts.shape[1])

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
