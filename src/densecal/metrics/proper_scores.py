"""Proper scores of the whole distribution, accuracy and mean confidence."""

from __future__ import annotations

from densecal.arrays import Array, ArrayLike, namespace, row_blocks, take_classes
from densecal.metrics.calibration_error import read_distribution, read_top1, wide

LIKELIHOOD_FLOOR = 1e-20
"""Smaller probabilities of the label are clipped to this, so that the NLL is finite."""
BLOCK_BYTES = 1 << 20
"""Blocks of squared errors in float64 of this size stay in the cache."""


def brier_score(probabilities: ArrayLike, labels: ArrayLike | None) -> float:
    r"""Return the Brier score: the mean over samples of the squared error summed over classes.

    .. math:: \frac{1}{N} \sum_i \sum_c (p_{ic} - [y_i = c])^2

    The probabilities have the shape (n_samples, n_classes), and the labels are integers or one-hot.

    Examples
    --------
    >>> brier_score([[0.5, 0.5], [1.0, 0.0]], [0, 1])
    1.25
    """
    return _mean(brier_of(*read_distribution(probabilities, labels)))


def negative_log_likelihood(probabilities: ArrayLike, labels: ArrayLike | None) -> float:
    r"""Return the negative log-likelihood: the mean of :math:`-\log p_{iy_i}`, with p clipped at 1e-20.

    The probabilities have the shape (n_samples, n_classes), and the labels are integers or one-hot.

    Examples
    --------
    >>> round(negative_log_likelihood([[0.5, 0.5], [1.0, 0.0]], [0, 0]), 4)
    0.3466
    """
    return _mean(nll_of(*read_distribution(probabilities, labels)))


def accuracy(probabilities: ArrayLike, labels: ArrayLike | None) -> float:
    """Return the fraction of samples whose most probable class is the label.

    The arguments are those of :func:`reliability_curve`.

    Examples
    --------
    >>> accuracy([[0.9, 0.1], [0.4, 0.6]], [0, 0])
    0.5
    """
    return _mean(wide(read_top1(probabilities, labels)[1]))


def mean_confidence(probabilities: ArrayLike, labels: ArrayLike | None) -> float:
    """Return the mean of the top-1 confidence."""
    return _mean(wide(read_top1(probabilities, labels)[0]))


def _mean(values: Array) -> float:
    return float(namespace(values).mean(values))


def brier_of(probabilities: Array, labels: Array) -> Array:
    """Return the Brier score of each sample."""
    xp = namespace(probabilities)
    squares = []
    for rows in row_blocks(probabilities.shape[0], probabilities.shape[1] * 8, BLOCK_BYTES):
        error = wide(probabilities[rows])
        error[xp.arange(error.shape[0], device=getattr(labels, "device", None)), labels[rows]] -= 1.0
        squares.append(xp.vecdot(error, error))
    return xp.concat(squares)


def nll_of(probabilities: Array, labels: Array) -> Array:
    """Return the negative log-likelihood of each sample."""
    xp = namespace(probabilities)
    return -xp.log(xp.clip(wide(take_classes(probabilities, labels)), LIKELIHOOD_FLOOR, None))
