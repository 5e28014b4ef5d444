"""How far confidence is from accuracy: binned errors, class by class, and the cumulative (KS) error."""

from __future__ import annotations

import math
from typing import Literal

from densecal.arrays import Array, namespace, row_blocks
from densecal.metrics.binning import Binning, check_bins, curve_of, width_edges, width_index
from densecal.metrics.inputs import read_distribution, read_top1, take_classes, wide

Norm = Literal["l1", "l2", "max"]


def expected_calibration_error(
    probabilities: object,
    labels: object,
    *,
    n_bins: int = 15,
    binning: Binning = "width",
    norm: Norm = "l1",
) -> float:
    r"""Measure the expected calibration error (ECE) of the top-1 confidence.

    .. math:: \mathrm{ECE} = \sum_b \frac{|B_b|}{N} \, |\mathrm{acc}(B_b) - \mathrm{conf}(B_b)|

    Parameters
    ----------
    probabilities, labels
        (N, C) probabilities with labels (integers or one-hot), or (N,) top-1 confidence with N booleans that say
        whether the prediction was correct.
    n_bins
        How many bins.
    binning
        ``"width"``: bins ``(i / n_bins, (i + 1) / n_bins]``; a confidence of exactly 0 belongs to the first.
        ``"mass"``: bins of nearly equal count; all samples of one confidence stay in one bin, the one in which the
        middle of their ranks lies, so the order of the samples never matters.
    norm
        ``"l1"``: the mean gap above. ``"l2"``: the root of the mean squared gap. ``"max"``: the largest gap of a bin
        that is not empty (maximum calibration error).

    Examples
    --------
    >>> expected_calibration_error([0.75, 0.75, 0.75, 0.75], [True, True, False, False])
    0.25
    >>> expected_calibration_error([[0.25, 0.75], [0.5, 0.5]], [1, 0], norm="max")
    0.5
    """
    confidence, correct = read_top1(probabilities, labels)
    curve = curve_of(confidence, correct, check_bins(n_bins), binning)
    xp = namespace(curve.counts)
    filled = curve.counts > 0
    gap, mass = xp.abs(curve.gap)[filled], curve.mass[filled]
    if norm == "l1":
        return float(xp.sum(mass * gap))
    if norm == "l2":
        return math.sqrt(float(xp.sum(mass * gap**2)))
    if norm == "max":
        return float(xp.max(gap))
    raise ValueError(f'norm must be "l1", "l2" or "max", got {norm!r}.')


def classwise_calibration_error(
    probabilities: object,
    labels: object,
    *,
    n_bins: int = 15,
    reduction: Literal["mean", "sum"] = "mean",
) -> float:
    """Class-wise ECE: the ECE of each class's probability, one against all, in bins of equal width.

    Kull et al. (2019) take the mean over classes. The DAC paper's table shows the sum, and its code has 15 edges and so
    14 bins; ``n_bins=14, reduction="sum"`` compares with it.

    Parameters
    ----------
    probabilities, labels
        (N, C) probabilities, and labels (integers or one-hot).
    n_bins
        Bins ``(i / n_bins, (i + 1) / n_bins]`` for each class.
    reduction
        ``"mean"`` or ``"sum"`` over the classes.

    Examples
    --------
    >>> classwise_calibration_error([[0.25, 0.75], [0.25, 0.75]], [1, 0])
    0.25
    """
    if reduction not in ("mean", "sum"):
        raise ValueError(f'reduction must be "mean" or "sum", got {reduction!r}.')
    return classwise_of(*read_distribution(probabilities, labels), check_bins(n_bins), reduction)


def classwise_of(probabilities: Array, labels: Array, n_bins: int, reduction: str = "mean") -> float:
    """Class-wise ECE of probabilities and labels that have been checked."""
    xp = namespace(probabilities)
    samples, classes = probabilities.shape
    # A row has at most n_bins probabilities above the first bin, so only those are sorted into bins. The first bin's
    # sum is the rest of the column's: one pass over the data, however many classes there are.
    first_edge = float(width_edges(n_bins, probabilities)[1])
    column_sums, upper_sums = 0.0, 0.0
    for rows in row_blocks(samples, classes * 8):
        block = probabilities[rows]
        row, column = xp.nonzero(block > first_edge)
        high = block[row, column]
        cell = column * n_bins + width_index(high, n_bins)
        upper_sums = upper_sums + xp.bincount(cell, weights=wide(high), minlength=classes * n_bins)
        column_sums = column_sums + xp.sum(wide(block), axis=0)
    confidence = xp.reshape(upper_sums, (classes, n_bins))
    confidence[:, 0] = column_sums - xp.sum(confidence, axis=1)

    own_bin = width_index(take_classes(probabilities, labels), n_bins)
    hits = xp.bincount(labels * n_bins + own_bin, minlength=classes * n_bins)
    total = float(xp.sum(xp.abs(confidence - xp.reshape(wide(hits), (classes, n_bins))))) / int(samples)
    return total / int(classes) if reduction == "mean" else total


def kolmogorov_smirnov_error(probabilities: object, labels: object) -> float:
    r"""KS error: the largest gap between cumulative confidence and cumulative accuracy, without bins.

    .. math:: \mathrm{KS} = \max_t \frac{1}{N} \Big| \sum_{i: c_i \le t} (c_i - a_i) \Big|

    with confidence :math:`c_i` and correctness :math:`a_i`. Samples of one confidence enter together, so their
    order does not matter.

    Parameters
    ----------
    probabilities, labels
        (N, C) probabilities with labels (integers or one-hot), or (N,) top-1 confidence with N booleans that say
        whether the prediction was correct.

    Examples
    --------
    >>> kolmogorov_smirnov_error([0.5, 0.5, 1.0, 1.0], [True, False, False, True])
    0.25
    """
    confidence, correct = read_top1(probabilities, labels)
    xp = namespace(confidence)
    _, group = xp.unique_inverse(confidence)
    gaps = xp.bincount(group, weights=wide(confidence) - wide(correct))
    return float(xp.max(xp.abs(xp.cumulative_sum(gaps)))) / int(confidence.shape[0])
