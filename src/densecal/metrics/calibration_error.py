"""Gaps between confidence and accuracy: binned errors, class-wise errors and the cumulative (KS) error."""

from __future__ import annotations

import math
from typing import Literal

from densecal.arrays import Array, ArrayLike, namespace, row_blocks
from densecal.metrics.binning import Binning, check_bins, curve_of, width_edges, width_index
from densecal.metrics.defaults import N_BINS
from densecal.metrics.inputs import check_choice, read_distribution, read_top1, take_classes, wide

Norm = Literal["l1", "l2", "max"]
Reduction = Literal["mean", "sum"]


def expected_calibration_error(
    probabilities: ArrayLike,
    labels: ArrayLike | None,
    *,
    n_bins: int = N_BINS,
    binning: Binning = "width",
    norm: Norm = "l1",
) -> float:
    r"""Top-1 expected calibration error (ECE): the mean gap between confidence and accuracy over bins.

    .. math:: \mathrm{ECE} = \sum_b \frac{|B_b|}{N} \, |\mathrm{acc}(B_b) - \mathrm{conf}(B_b)|

    Parameters
    ----------
    probabilities, labels
        (N, C) probabilities with labels (integers or one-hot), or (N,) top-1 confidence with N booleans that say
        whether the prediction was correct.
    n_bins
        Number of bins.
    binning
        ``"width"``: bins ``(i / n_bins, (i + 1) / n_bins]``; a confidence of exactly 0 belongs to the first.
        ``"mass"``: bins of nearly equal count; equal confidences share the bin that holds the middle of their ranks,
        so the order of the samples does not matter.
    norm
        ``"l1"``: the mean gap above. ``"l2"``: the root of the mean squared gap. ``"max"``: the largest gap of a
        non-empty bin (maximum calibration error).

    Examples
    --------
    >>> expected_calibration_error([0.75, 0.75, 0.75, 0.75], [True, True, False, False])
    0.25
    >>> expected_calibration_error([[0.25, 0.75], [0.5, 0.5]], [1, 0], norm="max")
    0.5
    """
    check_choice("norm", norm, ("l1", "l2", "max"))
    curve = curve_of(*read_top1(probabilities, labels), check_bins(n_bins), binning)
    xp = namespace(curve.counts)
    filled = curve.counts > 0
    gap, mass = xp.abs(curve.gap)[filled], curve.mass[filled]
    if norm == "l1":
        return float(xp.sum(mass * gap))
    if norm == "l2":
        return math.sqrt(float(xp.sum(mass * gap**2)))
    return float(xp.max(gap))


def classwise_calibration_error(
    probabilities: ArrayLike,
    labels: ArrayLike | None,
    *,
    n_bins: int = N_BINS,
    reduction: Reduction = "mean",
) -> float:
    """Class-wise ECE: the ECE of each class's probability, one against all, in bins of equal width.

    Kull et al. (2019) take the mean over classes. The DAC paper's table shows the sum, and its code has 15 edges,
    hence 14 bins: ``n_bins=14, reduction="sum"`` is comparable to it.

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
    check_choice("reduction", reduction, ("mean", "sum"))
    return classwise_of(*read_distribution(probabilities, labels), check_bins(n_bins), reduction)


def classwise_of(probabilities: Array, labels: Array, n_bins: int, reduction: Reduction) -> float:
    """Return the class-wise ECE of checked probabilities and labels."""
    xp = namespace(probabilities)
    samples, classes = probabilities.shape
    # Fewer than n_bins probabilities of a row lie above the first bin, so only those are sorted into bins. The first
    # bin's sum is the rest of the column's: one pass over the data, for any number of classes.
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


def kolmogorov_smirnov_error(probabilities: ArrayLike, labels: ArrayLike | None) -> float:
    r"""KS error: the largest gap between cumulative confidence and cumulative accuracy, without bins.

    .. math:: \mathrm{KS} = \max_t \frac{1}{N} \Big| \sum_{i: c_i \le t} (c_i - a_i) \Big|

    with confidence :math:`c_i` and correctness :math:`a_i`. Equal confidences enter together, so the order of the
    samples does not matter.

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
