"""How well the top-1 confidence separates in-domain samples (positive) from out-of-domain ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import NamedTuple

from densecal.arrays import Array, as_array, is_torch, namespace, to_numpy
from densecal.arrays.checks import check_finite_floats, check_probabilities
from densecal.metrics.inputs import wide


class ScoreCounts(NamedTuple):
    """How many in-domain and out-of-domain samples have each distinct score, from the highest score down."""

    inside: Array
    outside: Array


@dataclass(frozen=True)
class OODScores:
    """The five metrics of :func:`ood_scores`, as shares (not per cent).

    Examples
    --------
    >>> OODScores(0.5, 0.25, 0.875, 0.8, 0.8).as_dict()["auroc"]
    0.875
    """

    fpr_at_95_tpr: float
    detection_error: float
    auroc: float
    aupr_in: float
    aupr_out: float

    def as_dict(self) -> dict[str, float]:
        """Return the metrics by name."""
        return asdict(self)


def ood_scores(in_domain: object, out_of_domain: object) -> OODScores:
    """All five metrics of out-of-domain detection (Hendrycks and Gimpel 2017, Liang et al. 2018) from one sort.

    Parameters
    ----------
    in_domain, out_of_domain
        Top-1 confidence, or any score that is higher in the domain, of each set's samples; (N, C) probabilities are
        replaced by their top-1 confidence. In-domain is the positive class.

    Examples
    --------
    >>> ood_scores([0.9, 0.5], [0.5, 0.1]).auroc
    0.875
    """
    counts = count_scores(in_domain, out_of_domain)
    return OODScores(**{metric.__name__: of_counts(counts) for metric, of_counts in OF_COUNTS.items()})


def fpr_at_95_tpr(in_domain: object, out_of_domain: object) -> float:
    """Share of out-of-domain samples accepted at the highest threshold that accepts 95 % of the in-domain samples.

    Scores or (N, C) probabilities of each set, as in :func:`ood_scores`.

    Examples
    --------
    >>> fpr_at_95_tpr([0.9, 0.8, 0.7], [0.75, 0.2])
    0.5
    """
    return _fpr(count_scores(in_domain, out_of_domain))


def detection_error(in_domain: object, out_of_domain: object) -> float:
    """Smallest ``(1 - TPR) / 2 + FPR / 2`` over all thresholds.

    Liang et al. (2018) define it at 95 % TPR, where it adds nothing to :func:`fpr_at_95_tpr` (it is
    ``0.025 + FPR / 2``); their code, later work and densecal take the minimum over thresholds.

    Scores or (N, C) probabilities of each set, as in :func:`ood_scores`.

    Examples
    --------
    >>> detection_error([0.9, 0.8], [0.85, 0.2])
    0.25
    """
    return _detection_error(count_scores(in_domain, out_of_domain))


def auroc(in_domain: object, out_of_domain: object) -> float:
    """Area under the ROC curve: the chance that an in-domain sample scores higher; a tie counts one half.

    Scores or (N, C) probabilities of each set, as in :func:`ood_scores`.

    Examples
    --------
    >>> auroc([0.9, 0.5], [0.5, 0.2])
    0.875
    """
    return _auroc(count_scores(in_domain, out_of_domain))


def aupr_in(in_domain: object, out_of_domain: object) -> float:
    """Average precision with the in-domain samples as positives, found by high scores.

    Scores or (N, C) probabilities of each set, as in :func:`ood_scores`.

    Examples
    --------
    >>> round(aupr_in([0.9, 0.5], [0.7]), 4)
    0.8333
    """
    return _aupr_in(count_scores(in_domain, out_of_domain))


def aupr_out(in_domain: object, out_of_domain: object) -> float:
    """Average precision with the out-of-domain samples as positives, found by low scores.

    Scores or (N, C) probabilities of each set, as in :func:`ood_scores`.

    Examples
    --------
    >>> aupr_out([0.9, 0.5], [0.7])
    0.5
    """
    return _aupr_out(count_scores(in_domain, out_of_domain))


def _read_scores(scores: object, name: str) -> Array:
    array = as_array(scores)
    if array.ndim == 2:
        array = check_probabilities(array, name)
        return wide(namespace(array).max(array, axis=1))
    if array.ndim != 1 or array.shape[0] == 0:
        raise ValueError(
            f"{name} must hold one score per sample, shape (samples,), or (samples, classes) probabilities; "
            f"got {tuple(array.shape)}."
        )
    return wide(check_finite_floats(array, name))


def rank_scores(in_domain: object, out_of_domain: object) -> tuple[Array, Array, int]:
    """Return the rank of each in-domain and each out-of-domain score, and the number of ranks.

    Equal scores share a rank; rank 0 is the highest score.
    """
    inside, outside = _read_scores(in_domain, "in_domain"), _read_scores(out_of_domain, "out_of_domain")
    if is_torch(inside) != is_torch(outside):
        inside, outside = to_numpy(inside), to_numpy(outside)
    xp = namespace(inside)
    values, rank = xp.unique_inverse(-xp.concat([inside, outside]))
    return rank[: inside.shape[0]], rank[inside.shape[0] :], values.shape[0]


def count_scores(in_domain: object, out_of_domain: object) -> ScoreCounts:
    """Count both kinds of sample at each distinct score, from the highest down."""
    inside, outside, ranks = rank_scores(in_domain, out_of_domain)
    xp = namespace(inside)
    return ScoreCounts(wide(xp.bincount(inside, minlength=ranks)), wide(xp.bincount(outside, minlength=ranks)))


def _accepted(counts: Array) -> Array:
    """Return the share of samples at or above each distinct score."""
    running = namespace(counts).cumulative_sum(counts)
    return running / running[-1]


def _fpr(counts: ScoreCounts) -> float:
    xp = namespace(counts.inside)
    running = xp.cumulative_sum(counts.inside)
    # In whole samples: 0.95 * 20 is not 19 in floating point.
    reached = 100 * running >= 95 * running[-1]
    return float(xp.min(_accepted(counts.outside)[reached]))


def _detection_error(counts: ScoreCounts) -> float:
    best = float(namespace(counts.inside).min(1.0 - _accepted(counts.inside) + _accepted(counts.outside)))
    # Accepting nothing gives one half.
    return min(0.5, best / 2)


def _auroc(counts: ScoreCounts) -> float:
    # Trapezoids count ties one half.
    xp = namespace(counts.inside)
    share_inside = counts.inside / xp.sum(counts.inside)
    share_outside = counts.outside / xp.sum(counts.outside)
    return float(xp.sum(share_outside * (_accepted(counts.inside) - share_inside / 2)))


def _aupr_in(counts: ScoreCounts) -> float:
    return _average_precision(counts.inside, counts.outside)


def _aupr_out(counts: ScoreCounts) -> float:
    xp = namespace(counts.inside)
    return _average_precision(xp.flip(counts.outside), xp.flip(counts.inside))


def _average_precision(positives: Array, negatives: Array) -> float:
    xp = namespace(positives)
    true, false = xp.cumulative_sum(positives), xp.cumulative_sum(negatives)
    # A resample may leave the first scores without any sample; they then carry no positives either.
    precision = true / xp.clip(true + false, 1.0, None)
    return float(xp.sum(precision * positives) / true[-1])


OF_COUNTS: dict[Callable[..., float], Callable[[ScoreCounts], float]] = {
    fpr_at_95_tpr: _fpr,
    detection_error: _detection_error,
    auroc: _auroc,
    aupr_in: _aupr_in,
    aupr_out: _aupr_out,
}
"""From a metric to the same as a function of counts."""
