"""The metrics as functions of counts: how often each sample was drawn.

A binned error or a mean is then one matrix product for all resamples, instead of one call per resample.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import fft, sparse

from densecal.arrays import Array, ArrayLike, as_array, row_blocks, to_device_of, to_numpy
from densecal.arrays.checks import check_choice
from densecal.metrics import calibration_error, classwise_error, kernel_density, ks_error, proper_scores
from densecal.metrics.calibration_error import (
    N_BINS,
    Binning,
    check_bins,
    read_distribution,
    read_top1,
    width_edges,
    width_index,
)
from densecal.metrics.table import Metric

Floats: TypeAlias = NDArray[np.floating[Any]]
Statistic: TypeAlias = Callable[[Floats], Floats]
"""Map counts of shape (n_resamples, n_samples) to the metric in each resample."""


def prepare(metric: Metric, probabilities: ArrayLike, labels: ArrayLike | None) -> Statistic:
    """Return a metric of these samples as a function of counts. Other functions are called once per resample."""
    if metric.function in _FAST:
        return _FAST[metric.function](probabilities, labels, **metric.options)
    return _one_by_one(metric, as_array(probabilities), as_array(labels))


def _one_by_one(function: Callable[..., float], probabilities: Array, labels: Array) -> Statistic:
    def statistic(counts: Floats) -> Floats:
        values = np.empty(counts.shape[0])
        for row, drawn in enumerate(counts):
            index = np.repeat(np.arange(drawn.shape[0]), drawn.astype(np.int64))
            values[row] = function(*(array[to_device_of(index, array)] for array in (probabilities, labels)))
        return values

    return statistic


def _mean_of(values: Array) -> Statistic:
    column = to_numpy(values).astype(np.float32)
    return lambda counts: (counts @ column) / counts.shape[1]


def _residuals(probabilities: ArrayLike, labels: ArrayLike | None) -> tuple[Floats, Floats]:
    """Return the confidence in its own dtype, and confidence minus correctness in float64."""
    confidence, correct = (to_numpy(array) for array in read_top1(probabilities, labels))
    return confidence, confidence.astype(np.float64) - correct


def _ece(
    probabilities: ArrayLike,
    labels: ArrayLike | None,
    n_bins: int = N_BINS,
    binning: Binning = "width",
    norm: calibration_error.Norm = "l1",
) -> Statistic:
    check_choice("binning", binning, Binning)
    check_choice("norm", norm, calibration_error.Norm)
    sums = (_width_sums if binning == "width" else _mass_sums)(*_residuals(probabilities, labels), check_bins(n_bins))

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
    """Return a function for the sums of residuals and counts per bin, as one matrix product."""
    samples = np.arange(confidence.shape[0])
    member = np.zeros((samples.shape[0], 2 * n_bins), np.float32)
    index = width_index(confidence, n_bins)
    member[samples, index] = residual
    member[samples, n_bins + index] = 1

    def sums(counts: Floats) -> tuple[Floats, Floats]:
        both = counts @ member
        return both[:, :n_bins], both[:, n_bins:]

    return sums


def _by_confidence(confidence: Floats, residual: Floats) -> Callable[[Floats], tuple[Floats, Floats]]:
    """Return a function for the counts and residual sums of the distinct confidences, ascending, in a resample."""
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
    """Return a function for the sums per bin of equal mass. These bins differ between resamples."""
    groups = _by_confidence(confidence, residual)
    # A group is in bin b or above if twice its mean rank is at least 2 N b / n_bins.
    reach = -(-2 * confidence.shape[0] * np.arange(1, n_bins) // n_bins)

    def sums(counts: Floats) -> tuple[Floats, Floats]:
        gaps, sizes = np.empty((2, counts.shape[0], n_bins))
        # Row by row, the counts of a resample stay in the cache.
        for row, drawn in enumerate(counts):
            group_sizes, group_gaps = groups(drawn)
            size_below = np.concatenate([[0.0], np.cumsum(group_sizes, dtype=np.float64)])
            gap_below = np.concatenate([[0.0], np.cumsum(group_gaps)])
            ends = np.searchsorted(size_below[1:] + size_below[:-1], reach, side="left")
            ends = np.concatenate([[0], ends, [group_sizes.shape[0]]])
            gaps[row], sizes[row] = np.diff(gap_below[ends]), np.diff(size_below[ends])
        return gaps, sizes

    return sums


def _ks(probabilities: ArrayLike, labels: ArrayLike | None) -> Statistic:
    groups = _by_confidence(*_residuals(probabilities, labels))

    def statistic(counts: Floats) -> Floats:
        largest = [np.abs(np.cumsum(groups(drawn)[1])).max() for drawn in counts]
        return np.asarray(np.asarray(largest) / counts.shape[1])

    return statistic


def _classwise(
    probabilities: ArrayLike,
    labels: ArrayLike | None,
    n_bins: int = N_BINS,
    reduction: classwise_error.Reduction = "mean",
) -> Statistic:
    check_choice("reduction", reduction, classwise_error.Reduction)
    check_bins(n_bins)
    checked, classes = (to_numpy(array) for array in read_distribution(probabilities, labels))
    samples, n_classes = checked.shape
    residual = checked.astype(np.float32)
    residual[np.arange(samples), classes] -= 1

    # Few probabilities lie above the first bin, so they form a sparse matrix. The others are in the first bin.
    row, column = np.nonzero(checked > width_edges(n_bins, checked)[1])
    cell = column * n_bins + width_index(checked[row, column], n_bins)
    used, cell = np.unique(cell, return_inverse=True)
    upper = sparse.csr_array((residual[row, column], (cell, row)), shape=(used.shape[0], samples))
    residual[row, column] = 0

    def statistic(counts: Floats) -> Floats:
        total = np.abs(counts @ residual).sum(axis=1) + np.abs(upper @ counts.T).sum(axis=0)
        return np.asarray(total / samples / (n_classes if reduction == "mean" else 1))

    return statistic


def _kde(probabilities: ArrayLike, labels: ArrayLike | None) -> Statistic:
    confidence, correct = (to_numpy(array) for array in read_top1(probabilities, labels))
    confidence = confidence.astype(np.float64)
    # A density on a grid is linear in the counts: one sparse product in all, and one convolution per resample.
    masses = _grid_masses(confidence)
    hit_masses = sparse.diags_array(correct.astype(np.float32)) @ masses
    spectrum, size = _kernel_spectrum(kernel_density.bandwidth_of(confidence, correct))

    def statistic(counts: Floats) -> Floats:
        values = np.empty(counts.shape[0])
        for rows in row_blocks(counts.shape[0], 8 * kernel_density.GRID_POINTS):
            drawn = counts[rows]
            densities = []
            for part in (masses, hit_masses):
                on_grid = fft.rfft(np.ascontiguousarray(drawn @ part), n=size, axis=1)
                smooth = fft.irfft(on_grid * spectrum, n=size, axis=1)[:, kernel_density.INSIDE]
                densities.append(np.clip(smooth, 0, None) / drawn.shape[1])
            values[rows] = kernel_density.mean_gap(*densities)
        return values

    return statistic


def _grid_masses(confidence: Floats) -> sparse.csr_array:
    """Return the matrix (n_samples, n_points) that splits each value and its mirror image between grid points."""
    columns, shares = [], []
    for values in (confidence, kernel_density.mirrored(confidence)):
        left, share = kernel_density.neighbours(values)
        columns += [left, left + 1]
        shares += [1 - share, share]
    rows = np.tile(np.arange(confidence.shape[0]), 4)
    entries = np.concatenate(shares).astype(np.float32), (rows, np.concatenate(columns))
    return sparse.csr_array(entries, shape=(confidence.shape[0], kernel_density.GRID_POINTS))


def _kernel_spectrum(bandwidth: float) -> tuple[Floats, int]:
    """Return the real spectrum of the kernel, and the size of the transform that avoids wrap-around."""
    points = kernel_density.GRID_POINTS
    # Samples and mirror images lie in [-0.5, 1.5], so with a reach below 0.6 no wrap-around affects [0, 1].
    size = points if kernel_density.REACH * bandwidth < 0.6 else 2 * points
    half = kernel_density.kernel(np.arange(size // 2 + 1) * kernel_density.GRID_STEP, bandwidth)
    # The transform of a symmetric signal is the cosine transform of its half.
    return fft.dct(half.astype(np.float32), type=1), size


_FAST: dict[Callable[..., float], Callable[..., Statistic]] = {
    proper_scores.mean_confidence: lambda p, y: _mean_of(read_top1(p, y)[0]),
    proper_scores.accuracy: lambda p, y: _mean_of(read_top1(p, y)[1]),
    proper_scores.brier_score: lambda p, y: _mean_of(proper_scores.brier_of(*read_distribution(p, y))),
    proper_scores.negative_log_likelihood: lambda p, y: _mean_of(proper_scores.nll_of(*read_distribution(p, y))),
    calibration_error.expected_calibration_error: _ece,
    classwise_error.classwise_calibration_error: _classwise,
    ks_error.kolmogorov_smirnov_error: _ks,
    kernel_density.expected_calibration_error_kde: _kde,
}
"""The function that makes the statistic of each metric from (probabilities, labels, options)."""
