"""How well the top-1 confidence tells in-domain samples (positive) from out-of-domain ones."""

from __future__ import annotations

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
    """The five measures of :func:`ood_scores`, as shares (not per cent).

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
        """Return the measures by name."""
        return asdict(self)


def ood_scores(in_domain: object, out_of_domain: object) -> OODScores:
    """All five measures of out-of-domain detection (Hendrycks and Gimpel 2017, Liang et al. 2018) from one sort.

    Parameters
    ----------
    in_domain, out_of_domain
        Top-1 confidence, or any score that is higher in the domain, of each set's samples; (N, C) probabilities are
        taken as their top-1 confidence. In-domain is the positive class.

    Examples
    --------
    >>> ood_scores([0.9, 0.5], [0.5, 0.1]).auroc
    0.875
    """
    counts = count_scores(in_domain, out_of_domain)
    return OODScores(
        fpr_of(counts), detection_error_of(counts), auroc_of(counts), aupr_in_of(counts), aupr_out_of(counts)
    )


def fpr_at_95_tpr(in_domain: object, out_of_domain: object) -> float:
    """Share of out-of-domain samples accepted at the highest threshold that accepts 95 % of the in-domain samples.

    Parameters
    ----------
    in_domain, out_of_domain
        Scores (higher is in-domain) or (N, C) probabilities of each set.

    Examples
    --------
    >>> fpr_at_95_tpr([0.9, 0.8, 0.7], [0.75, 0.2])
    0.5
    """
    return fpr_of(count_scores(in_domain, out_of_domain))


def detection_error(in_domain: object, out_of_domain: object) -> float:
    """Smallest ``(1 - TPR) / 2 + FPR / 2`` over all thresholds.

    Liang et al. (2018) define it at 95 % TPR, where it says nothing beyond :func:`fpr_at_95_tpr` (it is
    ``0.025 + FPR / 2``); their code and later work, and densecal, take the minimum over thresholds.

    Parameters
    ----------
    in_domain, out_of_domain
        Scores (higher is in-domain) or (N, C) probabilities of each set.

    Examples
    --------
    >>> detection_error([0.9, 0.8], [0.85, 0.2])
    0.25
    """
    return detection_error_of(count_scores(in_domain, out_of_domain))


def auroc(in_domain: object, out_of_domain: object) -> float:
    """Area under the ROC curve: the chance that an in-domain sample scores higher; a tie counts one half.

    Parameters
    ----------
    in_domain, out_of_domain
        Scores (higher is in-domain) or (N, C) probabilities of each set.

    Examples
    --------
    >>> auroc([0.9, 0.5], [0.5, 0.2])
    0.875
    """
    return auroc_of(count_scores(in_domain, out_of_domain))


def aupr_in(in_domain: object, out_of_domain: object) -> float:
    """Average precision with the in-domain samples as positives, found by high scores.

    Parameters
    ----------
    in_domain, out_of_domain
        Scores (higher is in-domain) or (N, C) probabilities of each set.

    Examples
    --------
    >>> round(aupr_in([0.9, 0.5], [0.7]), 4)
    0.8333
    """
    return aupr_in_of(count_scores(in_domain, out_of_domain))


def aupr_out(in_domain: object, out_of_domain: object) -> float:
    """Average precision with the out-of-domain samples as positives, found by low scores.

    Parameters
    ----------
    in_domain, out_of_domain
        Scores (higher is in-domain) or (N, C) probabilities of each set.

    Examples
    --------
    >>> aupr_out([0.9, 0.5], [0.7])
    0.5
    """
    return aupr_out_of(count_scores(in_domain, out_of_domain))


def read_scores(scores: object, name: str) -> Array:
    """Return (N,) scores; (N, C) probabilities become their top-1 confidence."""
    array = as_array(scores)
    if array.ndim == 2:
        array = check_probabilities(array, name)
        return wide(namespace(array).max(array, axis=1))
    if array.ndim != 1 or array.shape[0] == 0:
        raise ValueError(
            f"{name} must hold one score a sample, shape (samples,), or (samples, classes) probabilities; "
            f"got {tuple(array.shape)}."
        )
    return wide(check_finite_floats(array, name))


def group_scores(in_domain: object, out_of_domain: object) -> tuple[Array, Array, int]:
    """Return for each in-domain and each out-of-domain sample the rank of its score, and how many ranks there are.

    Equal scores share a rank; rank 0 is the highest score.
    """
    inside, outside = read_scores(in_domain, "in_domain"), read_scores(out_of_domain, "out_of_domain")
    if is_torch(inside) != is_torch(outside):
        inside, outside = to_numpy(inside), to_numpy(outside)
    xp = namespace(inside)
    values, rank = xp.unique_inverse(-xp.concat([inside, outside]))
    return rank[: inside.shape[0]], rank[inside.shape[0] :], values.shape[0]


def count_scores(in_domain: object, out_of_domain: object) -> ScoreCounts:
    """Count both kinds of sample at each distinct score, from the highest down.

    Examples
    --------
    >>> count_scores([0.9, 0.5], [0.5])
    ScoreCounts(inside=array([1., 1.]), outside=array([0., 1.]))
    """
    inside, outside, ranks = group_scores(in_domain, out_of_domain)
    xp = namespace(inside)
    return ScoreCounts(wide(xp.bincount(inside, minlength=ranks)), wide(xp.bincount(outside, minlength=ranks)))


def _accepted(counts: Array) -> Array:
    """Share of samples at or above each distinct score."""
    xp = namespace(counts)
    running = xp.cumulative_sum(counts)
    return running / running[-1]


def fpr_of(counts: ScoreCounts) -> float:
    """Return the false positive rate at 95 % true positives."""
    xp = namespace(counts.inside)
    running = xp.cumulative_sum(counts.inside)
    # In whole samples: 0.95 * 20 is not 19 in floating point.
    reached = 100 * running >= 95 * running[-1]
    return float(xp.min(_accepted(counts.outside)[reached]))


def detection_error_of(counts: ScoreCounts) -> float:
    """Smallest mean of the two error rates; accepting nothing gives one half."""
    xp = namespace(counts.inside)
    best = float(xp.min(1.0 - _accepted(counts.inside) + _accepted(counts.outside)))
    return min(0.5, best / 2)


def auroc_of(counts: ScoreCounts) -> float:
    """Area under the ROC curve by trapezoids, which count ties one half."""
    xp = namespace(counts.inside)
    inside_at_or_above = _accepted(counts.inside)
    share_inside = counts.inside / xp.sum(counts.inside)
    share_outside = counts.outside / xp.sum(counts.outside)
    return float(xp.sum(share_outside * (inside_at_or_above - share_inside / 2)))


def aupr_in_of(counts: ScoreCounts) -> float:
    """Average precision of the in-domain samples."""
    return _average_precision(counts.inside, counts.outside)


def aupr_out_of(counts: ScoreCounts) -> float:
    """Average precision of the out-of-domain samples."""
    xp = namespace(counts.inside)
    return _average_precision(xp.flip(counts.outside), xp.flip(counts.inside))


def _average_precision(positives: Array, negatives: Array) -> float:
    xp = namespace(positives)
    true, false = xp.cumulative_sum(positives), xp.cumulative_sum(negatives)
    # A resample may leave the first scores without any sample; they then carry no positives either.
    precision = true / xp.clip(true + false, 1.0, None)
    return float(xp.sum(precision * positives) / true[-1])
