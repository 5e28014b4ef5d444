"""Bins of confidence, of equal width or of equal mass, and the sums over them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from densecal.arrays import Array, ArrayLike, ArrayOrTensor, asarray_like, namespace
from densecal.metrics.defaults import N_BINS
from densecal.metrics.inputs import check_choice, read_top1, wide

Binning = Literal["width", "mass"]


@dataclass(frozen=True, eq=False)
class ReliabilityCurve:
    """The bins behind an expected calibration error.

    Bin ``i`` holds the confidences in ``(edges[i], edges[i + 1]]``, the first bin also a confidence of exactly 0.

    Attributes
    ----------
    edges
        The ``n_bins + 1`` edges, from 0 to 1. An empty bin of equal mass has two equal edges.
    counts
        Samples in each bin.
    confidence, accuracy
        Mean confidence and share of correct predictions in each bin; NaN where a bin is empty.

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
        """Each bin's share of the samples."""
        counts = wide(self.counts)
        shares: ArrayOrTensor = counts / namespace(counts).sum(counts)
        return shares

    @property
    def gap(self) -> ArrayOrTensor:
        """Accuracy minus confidence of each bin: negative where the classifier is over-confident."""
        gaps: ArrayOrTensor = self.accuracy - self.confidence
        return gaps


def reliability_curve(
    probabilities: ArrayLike, labels: ArrayLike | None, *, n_bins: int = N_BINS, binning: Binning = "width"
) -> ReliabilityCurve:
    """Compare confidence with accuracy in bins of the top-1 confidence.

    Parameters
    ----------
    probabilities, labels
        (N, C) probabilities with labels (integers or one-hot), or (N,) top-1 confidence with N booleans that say
        whether the prediction was correct.
    n_bins
        Number of bins.
    binning
        ``"width"``: bins ``(i / n_bins, (i + 1) / n_bins]``. ``"mass"``: bins of nearly equal count; equal confidences
        share the bin that holds the middle of their ranks.

    Returns
    -------
    ReliabilityCurve
        Edges, counts, mean confidence and accuracy of the bins, as arrays of the input's kind.

    Examples
    --------
    >>> curve = reliability_curve([0.3, 0.9, 1.0], [False, True, False], n_bins=2)
    >>> curve.counts, curve.accuracy
    (array([1, 2]), array([0. , 0.5]))
    """
    return curve_of(*read_top1(probabilities, labels), check_bins(n_bins), binning)


def curve_of(confidence: Array, correct: Array, n_bins: int, binning: Binning) -> ReliabilityCurve:
    """Return the reliability curve of a checked confidence."""
    check_choice("binning", binning, ("width", "mass"))
    xp = namespace(confidence)
    if binning == "width":
        index, edges = width_index(confidence, n_bins), width_edges(n_bins, confidence)
    else:
        index, edges = _mass_bins(confidence, n_bins)
    counts = xp.bincount(index, minlength=n_bins)
    confidence_sums = xp.bincount(index, weights=wide(confidence), minlength=n_bins)
    correct_sums = xp.bincount(index, weights=wide(correct), minlength=n_bins)
    size = xp.where(counts == 0, asarray_like(np.nan, confidence_sums), wide(counts))
    return ReliabilityCurve(edges, counts, confidence_sums / size, correct_sums / size)


def check_bins(n_bins: int) -> int:
    """Return the number of bins, at least 1."""
    if isinstance(n_bins, bool) or int(n_bins) != n_bins or n_bins < 1:
        raise ValueError(f"n_bins must be a whole number of at least 1, got {n_bins!r}.")
    return int(n_bins)


def width_edges(n_bins: int, template: Array) -> Array:
    """Return the edges i / n_bins in the template's precision, so that a float32 0.2 equals the edge 3 / 15."""
    return asarray_like(np.arange(n_bins + 1) / n_bins, template)


def width_index(confidence: Array, n_bins: int) -> Array:
    """Return each confidence's bin of equal width, open below and closed above; 0 belongs to the first bin."""
    # Compared with the edges, not multiplied by n_bins: 15 * 0.2 need not round to 3.
    inner = width_edges(n_bins, confidence)[1:-1]
    return namespace(confidence).searchsorted(inner, confidence, side="left")


def _mass_bins(confidence: Array, n_bins: int) -> tuple[Array, Array]:
    xp = namespace(confidence)
    values, group = xp.unique_inverse(confidence)
    sizes = xp.bincount(group)
    # A group of c equal confidences above b smaller ones has the middle rank b + c / 2. Twice that is an integer, so
    # rounding never decides about a bin.
    group_bin = (2 * xp.cumulative_sum(sizes) - sizes) * n_bins // (2 * confidence.shape[0])
    # The largest confidence at or below each bin closes it; an empty bin closes where its neighbour does.
    bins = xp.asarray(np.arange(n_bins), dtype=group_bin.dtype, device=getattr(group_bin, "device", None))
    groups_up_to = xp.searchsorted(group_bin, bins, side="right")
    padded = xp.concat([asarray_like(np.zeros(1), confidence), values])
    edges = xp.concat([asarray_like(np.zeros(1), confidence), padded[groups_up_to]])
    edges[-1] = 1.0
    return group_bin[group], edges
