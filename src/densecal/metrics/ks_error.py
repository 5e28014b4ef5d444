"""The Kolmogorov-Smirnov (KS) calibration error, without bins."""

from __future__ import annotations

from densecal.arrays import Array, ArrayLike, namespace
from densecal.metrics.calibration_error import read_top1, wide


def kolmogorov_smirnov_error(probabilities: ArrayLike, labels: ArrayLike | None) -> float:
    r"""Return the KS error: the largest gap between cumulative confidence and cumulative accuracy, without bins.

    .. math:: \mathrm{KS} = \max_t \frac{1}{N} \Big| \sum_{i: c_i \le t} (c_i - a_i) \Big|

    with confidence :math:`c_i` and correctness :math:`a_i`. Equal confidences are summed first, so the result does not
    depend on the order of the samples.

    The arguments are those of :func:`reliability_curve`.

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
