"""Compute all metrics at once."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from densecal.arrays import ArrayLike, as_array, namespace
from densecal.metrics.calibration_error import (
    check_bins,
    classwise_of_sums,
    classwise_sums,
    expected_calibration_error,
    kolmogorov_smirnov_error,
)
from densecal.metrics.inputs import N_BINS, read_distribution, read_top1, top1_of
from densecal.metrics.kernel_density import kde_of
from densecal.metrics.proper_scores import accuracy, brier_of, mean_confidence, nll_of


@dataclass(frozen=True)
class Evaluation:
    """All metrics of one classifier on one data set. Metrics that need the whole distribution may be ``None``.

    The fields are names in :data:`~densecal.metrics.METRICS`, the number of samples and the mean confidence.

    Examples
    --------
    >>> evaluate([0.75, 0.75], [True, False], kde=False).as_dict()["ece"]
    0.25
    """

    n_samples: int
    accuracy: float
    mean_confidence: float
    ece: float
    ece_mass: float
    ece_kde: float | None
    ks: float
    classwise_ece: float | None
    classwise_ece_sum: float | None
    brier: float | None
    nll: float | None

    def as_dict(self) -> dict[str, float | None]:
        """Return the metrics by name, for a data frame or JSON."""
        return asdict(self)


def evaluate(
    probabilities: ArrayLike,
    labels: ArrayLike | None,
    *,
    confidence: ArrayLike | None = None,
    n_bins: int = N_BINS,
    kde: bool = True,
) -> Evaluation:
    """Compute all calibration metrics.

    Parameters
    ----------
    probabilities, labels
        As in :func:`reliability_curve`. With a top-1 confidence, metrics of the whole distribution are ``None``.
    confidence
        Top-1 confidence, if it is not the largest probability, as in spline calibration.
    n_bins, kde
        Number of bins of the binned metrics, and whether to compute ECE-KDE.

    Examples
    --------
    >>> row = evaluate([[0.75, 0.25], [0.25, 0.75]], [0, 0], kde=False)
    >>> row.accuracy, row.ece, row.brier
    (0.5, 0.25, 0.625)
    """
    n_bins = check_bins(n_bins)
    if as_array(probabilities).ndim == 1:
        score, correct = read_top1(probabilities, labels, confidence)
        classwise = classwise_sum = brier = nll = None
    else:
        checked, classes = read_distribution(probabilities, labels)
        score, correct = top1_of(checked, classes, confidence)
        classwise_sum = classwise_of_sums(classwise_sums(checked, classes, n_bins), checked.shape[0], "sum")
        classwise = classwise_sum / checked.shape[1]
        brier, nll = (float(namespace(checked).mean(each(checked, classes))) for each in (brier_of, nll_of))
    return Evaluation(
        n_samples=int(score.shape[0]),
        accuracy=accuracy(score, correct),
        mean_confidence=mean_confidence(score, correct),
        ece=expected_calibration_error(score, correct, n_bins=n_bins),
        ece_mass=expected_calibration_error(score, correct, n_bins=n_bins, binning="mass"),
        ece_kde=kde_of(score, correct) if kde else None,
        ks=kolmogorov_smirnov_error(score, correct),
        classwise_ece=classwise,
        classwise_ece_sum=classwise_sum,
        brier=brier,
        nll=nll,
    )
