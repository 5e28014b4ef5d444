"""The class-wise calibration error: the gap of each class, one against the rest."""

from __future__ import annotations

from typing import Literal

from densecal.arrays import Array, ArrayLike, namespace, row_blocks, take_classes
from densecal.arrays.checks import check_choice
from densecal.metrics.calibration_error import N_BINS, check_bins, read_distribution, wide, width_edges, width_index

Reduction = Literal["mean", "sum"]


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

    The probabilities have the shape (n_samples, n_classes), and the labels are integers or one-hot. The bins are
    ``(i / n_bins, (i + 1) / n_bins]``.

    Examples
    --------
    >>> classwise_calibration_error([[0.25, 0.75], [0.25, 0.75]], [1, 0])
    0.25
    """
    check_choice("reduction", reduction, Reduction)
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
