"""Calibration errors: gaps between confidence and accuracy, binned, class-wise and cumulative (KS)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from densecal.arrays import Array, ArrayLike, ArrayOrTensor, asarray_like, namespace, row_blocks, take_classes
from densecal.metrics.inputs import N_BINS, check_choice, read_distribution, read_top1, wide

Binning = Literal["width", "mass"]
Norm = Literal["l1", "l2", "max"]
Reduction = Literal["mean", "sum"]


@dataclass(frozen=True, eq=False)
class ReliabilityCurve:
    """The bins of an expected calibration error.

    Bin ``i`` holds the confidences in ``(edges[i], edges[i + 1]]``. The first bin includes 0.

    Attributes
    ----------
    edges
        The ``n_bins + 1`` edges, from 0 to 1. With ``binning="mass"``, an empty bin has two equal edges.
    counts
        Number of samples per bin.
    confidence, accuracy
        Mean confidence and fraction of correct predictions per bin, NaN for an empty bin.

    Examples
    --------
    >>> curve = reliability_curve([0.75, 0.75, 0.25, 0.25], [True, True, True, False], n_bins=2)
    >>> curve.mass, curve.gap
    (array([0.5, 0.5]), array([0.25, 0.25]))
    """

    edges: ArrayOrTensor
    counts: ArrayOrTensor
    confidence: ArrayOrTensor
    accuracy: ArrayOrTensor

    @property
    def mass(self) -> ArrayOrTensor:
        """The fraction of the samples in each bin."""
        counts = wide(self.counts)
        shares: ArrayOrTensor = counts / namespace(counts).sum(counts)
        return shares

    @property
    def gap(self) -> ArrayOrTensor:
        """Accuracy minus confidence of each bin, negative where the classifier is over-confident."""
        gaps: ArrayOrTensor = self.accuracy - self.confidence
        return gaps


def reliability_curve(
    probabilities: ArrayLike, labels: ArrayLike | None, *, n_bins: int = N_BINS, binning: Binning = "width"
) -> ReliabilityCurve:
    """Return the confidence and accuracy in bins of the top-1 confidence.

    Parameters
    ----------
    probabilities, labels
        Probabilities of shape (n_samples, n_classes) with labels (integers or one-hot), or top-1 confidence of shape
        (n_samples,) with booleans (whether each prediction was correct).
    n_bins
        Number of bins.
    binning
        ``"width"``: bins ``(i / n_bins, (i + 1) / n_bins]``; the first bin includes 0.
        ``"mass"``: bins of nearly equal count. Equal confidences are put in the bin of their mean rank, so the result
        does not depend on the order of the samples.

    Returns
    -------
    ReliabilityCurve
        Edges, counts, mean confidence and accuracy of the bins, as NumPy arrays or tensors like the input.

    Examples
    --------
    >>> curve = reliability_curve([0.3, 0.9, 1.0], [False, True, False], n_bins=2)
    >>> curve.counts, curve.accuracy
    (array([1, 2]), array([0. , 0.5]))
    """
    check_choice("binning", binning, ("width", "mass"))
    (confidence, correct), n_bins = read_top1(probabilities, labels), check_bins(n_bins)
    xp = namespace(confidence)
    if binning == "width":
        index, edges = width_index(confidence, n_bins), width_edges(n_bins, confidence)
    else:
        index, edges = _mass_bins(confidence, n_bins)
    counts = xp.bincount(index, minlength=n_bins)
    confidence_sums = xp.bincount(index, weights=wide(confidence), minlength=n_bins)
    correct_sums = xp.bincount(index, weights=wide(correct), minlength=n_bins)
    return curve_of_sums(edges, counts, confidence_sums, correct_sums)


def curve_of_sums(edges: Array, counts: Array, confidence_sums: Array, correct_sums: Array) -> ReliabilityCurve:
    """Return the reliability curve of the sums over the samples of each bin."""
    size = namespace(counts).where(counts == 0, asarray_like(np.nan, confidence_sums), wide(counts))
    return ReliabilityCurve(edges, counts, confidence_sums / size, correct_sums / size)


def check_bins(n_bins: int) -> int:
    """Return the number of bins; raise if it is not a positive integer."""
    if isinstance(n_bins, bool) or int(n_bins) != n_bins or n_bins < 1:
        raise ValueError(f"n_bins must be an integer of at least 1, got {n_bins!r}.")
    return int(n_bins)


def width_edges(n_bins: int, template: Array) -> Array:
    """Return the edges i / n_bins in the template's precision, so that a float32 0.2 equals the edge 3 / 15."""
    return asarray_like(np.arange(n_bins + 1) / n_bins, template)


def width_index(confidence: Array, n_bins: int) -> Array:
    """Return the index of the equal-width bin (open below, closed above) of each confidence."""
    # Compare with the edges instead of multiplying by n_bins: 15 * 0.2 may not round to 3.
    inner = width_edges(n_bins, confidence)[1:-1]
    return namespace(confidence).searchsorted(inner, confidence, side="left")


def _mass_bins(confidence: Array, n_bins: int) -> tuple[Array, Array]:
    xp = namespace(confidence)
    values, group = xp.unique_inverse(confidence)
    group_bin = mass_index(xp.bincount(group), n_bins)
    # The upper edge of a bin is the largest confidence in it or below it.
    bins = xp.asarray(np.arange(n_bins), dtype=group_bin.dtype, device=getattr(group_bin, "device", None))
    groups_up_to = xp.searchsorted(group_bin, bins, side="right")
    padded = xp.concat([asarray_like(np.zeros(1), confidence), values])
    edges = xp.concat([asarray_like(np.zeros(1), confidence), padded[groups_up_to]])
    edges[-1] = 1.0
    return group_bin[group], edges


def mass_index(sizes: Array, n_bins: int) -> Array:
    """Return the equal-mass bin of each group of equal confidences, from the sizes of the groups, ascending."""
    xp = namespace(sizes)
    ends = xp.cumulative_sum(sizes)
    # A group of c equal confidences above b smaller ones has the mean rank b + c / 2. Twice that is an integer, so
    # rounding cannot change the bin.
    return (2 * ends - sizes) * n_bins // (2 * ends[-1])


def expected_calibration_error(
    probabilities: ArrayLike,
    labels: ArrayLike | None,
    *,
    n_bins: int = N_BINS,
    binning: Binning = "width",
    norm: Norm = "l1",
) -> float:
    r"""Return the top-1 expected calibration error (ECE): the mean gap between confidence and accuracy over bins.

    .. math:: \mathrm{ECE} = \sum_b \frac{|B_b|}{N} \, |\mathrm{acc}(B_b) - \mathrm{conf}(B_b)|

    Parameters
    ----------
    probabilities, labels, n_bins, binning
        As in :func:`reliability_curve`.
    norm
        ``"l1"``: the mean gap. ``"l2"``: the root mean squared gap. ``"max"``: the largest gap of a non-empty bin
        (maximum calibration error).

    Examples
    --------
    >>> expected_calibration_error([0.75, 0.75, 0.75, 0.75], [True, True, False, False])
    0.25
    >>> expected_calibration_error([[0.25, 0.75], [0.5, 0.5]], [1, 0], norm="max")
    0.5
    """
    check_choice("norm", norm, ("l1", "l2", "max"))
    return error_of(reliability_curve(probabilities, labels, n_bins=n_bins, binning=binning), norm)


def error_of(curve: ReliabilityCurve, norm: Norm = "l1") -> float:
    """Return the calibration error of the bins of a reliability curve."""
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
    """Return the class-wise ECE: the one-vs-rest ECE of each class, in bins of equal width.

    Kull et al. (2019) take the mean over classes. The table of the DAC paper shows the sum, and its code has 15 edges,
    that is 14 bins: use ``n_bins=14, reduction="sum"`` to compare with it.

    Parameters
    ----------
    probabilities, labels
        Probabilities of shape (n_samples, n_classes), and labels (integers or one-hot).
    n_bins
        Number of bins ``(i / n_bins, (i + 1) / n_bins]`` per class.
    reduction
        ``"mean"`` or ``"sum"`` over the classes.

    Examples
    --------
    >>> classwise_calibration_error([[0.25, 0.75], [0.25, 0.75]], [1, 0])
    0.25
    """
    check_choice("reduction", reduction, ("mean", "sum"))
    checked, classes = read_distribution(probabilities, labels)
    return classwise_of_sums(classwise_sums(checked, classes, check_bins(n_bins)), checked.shape[0], reduction)


def classwise_of_sums(sums: Array, n_samples: int, reduction: Reduction) -> float:
    """Return the class-wise ECE of the sums of probability minus hit in each bin of each class."""
    total = float(namespace(sums).sum(namespace(sums).abs(sums))) / int(n_samples)
    return total / int(sums.shape[0]) if reduction == "mean" else total


def classwise_sums(probabilities: Array, labels: Array, n_bins: int) -> Array:
    """Return the sum of probability minus hit (whether the class is the label) in each bin of each class."""
    xp = namespace(probabilities)
    samples, classes = probabilities.shape
    # Fewer than n_bins probabilities per row lie above the first bin, so only those are binned. The sum of the first
    # bin is the remainder of the column sum: one pass over the data, for any number of classes.
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
    return confidence - xp.reshape(wide(hits), (classes, n_bins))


def kolmogorov_smirnov_error(probabilities: ArrayLike, labels: ArrayLike | None) -> float:
    r"""Return the KS error: the largest gap between cumulative confidence and cumulative accuracy, without bins.

    .. math:: \mathrm{KS} = \max_t \frac{1}{N} \Big| \sum_{i: c_i \le t} (c_i - a_i) \Big|

    with confidence :math:`c_i` and correctness :math:`a_i`. Equal confidences are summed first, so the result does not
    depend on the order of the samples.

    Parameters
    ----------
    probabilities, labels
        As in :func:`reliability_curve`.

    Examples
    --------
    >>> kolmogorov_smirnov_error([0.5, 0.5, 1.0, 1.0], [True, False, False, True])
    0.25
    """
    confidence, correct = read_top1(probabilities, labels)
    xp = namespace(confidence)
    _, group = xp.unique_inverse(confidence)
    return largest_gap(xp.bincount(group, weights=wide(confidence) - wide(correct))) / int(confidence.shape[0])


def largest_gap(gaps: Array) -> float:
    """Return the largest absolute value of the cumulative sum of confidence minus correctness."""
    xp = namespace(gaps)
    return float(xp.max(xp.abs(xp.cumulative_sum(gaps))))
