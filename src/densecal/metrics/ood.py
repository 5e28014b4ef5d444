"""Metrics of out-of-domain detection by the top-1 confidence. In-domain is the positive class."""

from __future__ import annotations

from dataclasses import dataclass

from densecal.arrays import Array, ArrayLike, as_array, is_torch, namespace, to_numpy
from densecal.arrays.checks import check_finite_floats, check_probabilities
from densecal.metrics.calibration_error import wide


@dataclass(frozen=True)
class OODScores:
    """The five metrics of :func:`ood_scores`, as fractions (not per cent)."""

    fpr_at_95_tpr: float
    detection_error: float
    auroc: float
    aupr_in: float
    aupr_out: float

    def as_dict(self) -> dict[str, float]:
        """Return the metrics by name."""
        return dict(vars(self))


def ood_scores(in_domain: ArrayLike, out_of_domain: ArrayLike) -> OODScores:
    """Return the five metrics of out-of-domain detection (Hendrycks and Gimpel 2017, Liang et al. 2018).

    Parameters
    ----------
    in_domain, out_of_domain
        Scores of shape (n_samples,) that are higher for in-domain samples, such as the top-1 confidence, or
        probabilities of shape (n_samples, n_classes), whose top-1 confidence is used. In-domain is the positive class.

    Examples
    --------
    >>> ood_scores([0.9, 0.5], [0.5, 0.1]).auroc
    0.875
    """
    inside, outside, n_ranks = rank_scores(in_domain, out_of_domain)
    xp = namespace(inside)
    return scores_of(*(wide(xp.bincount(ranks, minlength=n_ranks)) for ranks in (inside, outside)))


def fpr_at_95_tpr(in_domain: ArrayLike, out_of_domain: ArrayLike) -> float:
    """Return the false positive rate at the highest threshold with a true positive rate of at least 95 %.

    The arguments are those of :func:`ood_scores`.

    Examples
    --------
    >>> fpr_at_95_tpr([0.9, 0.8, 0.7], [0.75, 0.2])
    0.5
    """
    return ood_scores(in_domain, out_of_domain).fpr_at_95_tpr


def detection_error(in_domain: ArrayLike, out_of_domain: ArrayLike) -> float:
    """Return the smallest ``(1 - TPR) / 2 + FPR / 2`` over all thresholds.

    Liang et al. (2018) define it at 95 % TPR, where it is ``0.025 + FPR / 2`` and adds nothing to
    :func:`fpr_at_95_tpr`. Their code, later work and densecal take the minimum over thresholds. The arguments are those
    of :func:`ood_scores`.

    Examples
    --------
    >>> detection_error([0.9, 0.8], [0.85, 0.2])
    0.25
    """
    return ood_scores(in_domain, out_of_domain).detection_error


def auroc(in_domain: ArrayLike, out_of_domain: ArrayLike) -> float:
    """Return the area under the ROC curve: the probability that an in-domain sample scores higher. Ties count half.

    The arguments are those of :func:`ood_scores`.

    Examples
    --------
    >>> auroc([0.9, 0.5], [0.5, 0.2])
    0.875
    """
    return ood_scores(in_domain, out_of_domain).auroc


def aupr_in(in_domain: ArrayLike, out_of_domain: ArrayLike) -> float:
    """Return the average precision with in-domain samples as positives, detected by high scores.

    The arguments are those of :func:`ood_scores`.

    Examples
    --------
    >>> round(aupr_in([0.9, 0.5], [0.7]), 4)
    0.8333
    """
    return ood_scores(in_domain, out_of_domain).aupr_in


def aupr_out(in_domain: ArrayLike, out_of_domain: ArrayLike) -> float:
    """Return the average precision with out-of-domain samples as positives, detected by low scores.

    The arguments are those of :func:`ood_scores`.

    Examples
    --------
    >>> aupr_out([0.9, 0.5], [0.7])
    0.5
    """
    return ood_scores(in_domain, out_of_domain).aupr_out


def _read_scores(scores: object, name: str) -> Array:
    array = as_array(scores)
    if array.ndim == 2:
        return wide(namespace(array).max(check_probabilities(array, name), axis=1))
    if array.ndim != 1 or array.shape[0] == 0:
        raise ValueError(
            f"{name} must be scores of shape (n_samples,) or probabilities of shape (n_samples, n_classes), "
            f"got {tuple(array.shape)}."
        )
    return wide(check_finite_floats(array, name))


def rank_scores(in_domain: object, out_of_domain: object) -> tuple[Array, Array, int]:
    """Return the ranks of the in-domain and out-of-domain scores, 0 for the highest, and the number of ranks."""
    inside, outside = _read_scores(in_domain, "in_domain"), _read_scores(out_of_domain, "out_of_domain")
    if is_torch(inside) != is_torch(outside):
        inside, outside = to_numpy(inside), to_numpy(outside)
    xp = namespace(inside)
    values, rank = xp.unique_inverse(-xp.concat([inside, outside]))
    return rank[: inside.shape[0]], rank[inside.shape[0] :], values.shape[0]


def scores_of(inside: Array, outside: Array) -> OODScores:
    """Return the metrics from the counts of in- and out-of-domain samples at each distinct score, descending."""
    xp = namespace(inside)
    above_in, above_out = xp.cumulative_sum(inside), xp.cumulative_sum(outside)
    n_inside, n_outside = above_in[-1], above_out[-1]
    true_rate, false_rate = above_in / n_inside, above_out / n_outside
    # Compare integers: 0.95 * 20 is not 19 in floating point.
    fpr = float(xp.min(false_rate[100 * above_in >= 95 * n_inside]))
    # The error is one half if no sample is accepted.
    error = min(0.5, float(xp.min(1.0 - true_rate + false_rate)) / 2)
    # The trapezoid rule counts ties as one half.
    area = float(xp.sum(outside / n_outside * (true_rate - inside / n_inside / 2)))
    below_in, below_out = n_inside - above_in + inside, n_outside - above_out + outside
    precision_in = _average_precision(inside, above_in, above_in + above_out)
    return OODScores(fpr, error, area, precision_in, _average_precision(outside, below_out, below_in + below_out))


def _average_precision(positives: Array, true: Array, found: Array) -> float:
    # In a resample the first scores may have no samples, and therefore no positives either.
    xp = namespace(positives)
    found[found == 0] = 1.0
    return float(xp.sum(true / found * positives) / xp.max(true))
