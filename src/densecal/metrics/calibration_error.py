"""The expected calibration error in bins of the confidence, and the checks of the inputs of all metrics."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, cast

import numpy as np

from densecal.arrays import (
    Array,
    ArrayLike,
    ArrayOrTensor,
    as_array,
    asarray_like,
    is_torch,
    namespace,
    take_classes,
    to_device_of,
)
from densecal.arrays.checks import (
    RANGE_TOLERANCE,
    check_choice,
    check_finite_floats,
    check_labels,
    check_probabilities,
)

N_BINS = 15
"""Default number of bins."""
Binning = Literal["width", "mass"]
Norm = Literal["l1", "l2", "max"]


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
        return cast(ArrayOrTensor, counts / namespace(counts).sum(counts))

    @property
    def gap(self) -> ArrayOrTensor:
        """Accuracy minus confidence of each bin, negative where the classifier is overconfident."""
        return cast(ArrayOrTensor, self.accuracy - self.confidence)


def reliability_curve(
    probabilities: ArrayLike, labels: ArrayLike | None, *, n_bins: int = N_BINS, binning: Binning = "width"
) -> ReliabilityCurve:
    """Return the confidence and accuracy in bins of the top-1 confidence, as arrays or tensors like the input.

    Parameters
    ----------
    probabilities, labels
        Probabilities of shape (n_samples, n_classes) with labels (integers or one-hot), or top-1 confidence of shape
        (n_samples,) with booleans (whether each prediction was correct).
    binning
        ``"width"``: bins ``(i / n_bins, (i + 1) / n_bins]``; the first bin includes 0.
        ``"mass"``: bins of nearly equal count. Equal confidences are put in the bin of their mean rank, so the result
        does not depend on the order of the samples.

    Examples
    --------
    >>> curve = reliability_curve([0.3, 0.9, 1.0], [False, True, False], n_bins=2)
    >>> curve.counts, curve.accuracy
    (array([1, 2]), array([0. , 0.5]))
    """
    check_choice("binning", binning, Binning)
    (confidence, correct), n_bins = read_top1(probabilities, labels), check_bins(n_bins)
    xp = namespace(confidence)
    if binning == "width":
        index, edges = width_index(confidence, n_bins), width_edges(n_bins, confidence)
    else:
        index, edges = _mass_bins(confidence, n_bins)
    counts = xp.bincount(index, minlength=n_bins)
    sums = [xp.bincount(index, weights=wide(each), minlength=n_bins) for each in (confidence, correct)]
    return curve_of_sums(edges, counts, *sums)


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
    check_choice("norm", norm, Norm)
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


def read_top1(
    probabilities: ArrayLike, labels: ArrayLike | None, confidence: ArrayLike | None = None
) -> tuple[Array, Array]:
    """Return top-1 confidence and correctness from (probabilities, labels) or (confidence, correct)."""
    first = as_array(probabilities)
    if first.ndim == 1:
        if confidence is not None:
            raise ValueError("confidence must be None if probabilities is a 1-d top-1 confidence.")
        score = check_confidence(first)
        return score, check_correct(labels, score)
    return top1_of(*read_distribution(first, labels))


def top1_of(probabilities: Array, labels: Array, confidence: ArrayLike | None = None) -> tuple[Array, Array]:
    """Return the given or the top-1 confidence, and whether the predicted class (the first in a tie) is the label."""
    predicted = namespace(probabilities).argmax(probabilities, axis=1)
    if confidence is None:
        return take_classes(probabilities, predicted), predicted == labels
    score = check_confidence(confidence)
    return score, check_correct(predicted == labels, score)


def read_distribution(probabilities: ArrayLike, labels: ArrayLike | None) -> tuple[Array, Array]:
    """Return validated probabilities and integer labels in the same library and on the same device."""
    array = as_array(probabilities)
    if array.ndim == 1:
        raise ValueError(
            f"probabilities must have shape (n_samples, n_classes), got {tuple(array.shape)}: this metric needs the "
            "whole distribution, not only the top-1 confidence."
        )
    if array.ndim == 2 and as_array(labels).ndim == 1 and _is_boolean(as_array(labels)):
        raise TypeError(
            "labels must be integers for probabilities of shape (n_samples, n_classes), got booleans. To pass whether "
            "each prediction was correct, pass the top-1 confidence of shape (n_samples,) instead of probabilities."
        )
    checked = check_probabilities(array)
    return checked, check_labels(labels, checked.shape[0], checked.shape[1], like=checked)


def check_confidence(confidence: ArrayLike) -> Array:
    """Return a top-1 confidence as floats in [0, 1], of shape (n_samples,)."""
    array = as_array(confidence)
    if array.ndim != 1 or array.shape[0] == 0:
        raise ValueError(f"confidence must have shape (n_samples,) with at least 1 sample, got {tuple(array.shape)}.")
    array = check_finite_floats(array, "confidence")
    xp = namespace(array)
    low, high = float(xp.min(array)), float(xp.max(array))
    if low < -RANGE_TOLERANCE or high > 1 + RANGE_TOLERANCE:
        raise ValueError(
            f"confidence must lie in [0, 1], got values from {low:.6g} to {high:.6g}. "
            "Pass probabilities, not percentages or logits."
        )
    return xp.clip(array, 0.0, 1.0)


def check_correct(correct: ArrayLike | None, confidence: Array) -> Array:
    """Return correctness as booleans in the library and on the device of the confidence."""
    array = as_array(correct)
    if not _is_boolean(array):
        raise TypeError(
            f"with a 1-d confidence, the second argument must be booleans (predicted == labels), got dtype "
            f"{array.dtype}. To pass labels, pass probabilities of shape (n_samples, n_classes)."
        )
    if tuple(array.shape) != tuple(confidence.shape):
        raise ValueError(
            f"correct must have the shape of the confidence, {tuple(confidence.shape)}, got {tuple(array.shape)}."
        )
    return to_device_of(array, confidence)


def _is_boolean(array: Array) -> bool:
    return bool(namespace(array).isdtype(array.dtype, "bool"))


def wide(array: Array) -> Array:
    """Return the array in float64 for sums over many samples, or in float32 on MPS, which lacks float64."""
    xp = namespace(array)
    on_mps = is_torch(array) and array.device.type == "mps"
    return xp.astype(array, xp.float32 if on_mps else xp.float64)
