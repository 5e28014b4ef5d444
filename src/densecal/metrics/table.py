"""The metrics as data: name, function, description and citation; and all of them at once."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any, Literal

from densecal.arrays import ArrayLike, as_array, namespace
from densecal.metrics import ood
from densecal.metrics.calibration_error import (
    N_BINS,
    check_bins,
    expected_calibration_error,
    read_distribution,
    read_top1,
    top1_of,
)
from densecal.metrics.classwise_error import classwise_calibration_error, classwise_of_sums, classwise_sums
from densecal.metrics.kernel_density import expected_calibration_error_kde
from densecal.metrics.ks_error import kolmogorov_smirnov_error
from densecal.metrics.proper_scores import (
    LIKELIHOOD_FLOOR,
    accuracy,
    brier_of,
    brier_score,
    mean_confidence,
    negative_log_likelihood,
    nll_of,
)

Needs = Literal["confidence", "distribution", "in and out of domain"]

_NAEINI = "Naeini, Cooper, Hauskrecht: Obtaining Well Calibrated Probabilities Using Bayesian Binning. AAAI 2015"
_NGUYEN = (
    "Nguyen, O'Connor: Posterior Calibration and Exploratory Analysis for Natural Language Processing Models. "
    "EMNLP 2015"
)
_ZHANG = (
    "Zhang, Kailkhura, Han: Mix-n-Match: Ensemble and Compositional Methods for Uncertainty Calibration in Deep "
    "Learning. ICML 2020"
)
_GUPTA = (
    "Gupta, Rahimi, Ajanthan, Mensink, Sminchisescu, Hartley: Calibration of Neural Networks Using Splines. ICLR 2021"
)
_KULL = (
    "Kull, Perello-Nieto, Kängsepp, Silva Filho, Song, Flach: Beyond Temperature Scaling: Obtaining Well-Calibrated "
    "Multi-Class Probabilities with Dirichlet Calibration. NeurIPS 2019"
)
_BRIER = "Brier: Verification of Forecasts Expressed in Terms of Probability. Monthly Weather Review 1950"
_HENDRYCKS = (
    "Hendrycks, Gimpel: A Baseline for Detecting Misclassified and Out-of-Distribution Examples in Neural Networks. "
    "ICLR 2017"
)
_LIANG = (
    "Liang, Li, Srikant: Enhancing the Reliability of Out-of-Distribution Image Detection in Neural Networks. ICLR 2018"
)


@dataclass(frozen=True)
class Metric:
    """A metric and its description. Calling it calls ``function`` with ``options``.

    Attributes
    ----------
    name, symbol, description, citation
        The key in :data:`METRICS`, the column header in tables, the definition in one line and the publication.
    function
        A function of (probabilities, labels), of (confidence, correct) or of (in_domain, out_of_domain).
    needs
        The input: ``"confidence"`` for the top-1 confidence, ``"distribution"`` for the probabilities of all classes,
        ``"in and out of domain"`` for the scores of two data sets.
    better, largest
        Whether ``"lower"`` or ``"higher"`` values are better, and the largest possible value; the smallest is 0.
    options
        Options of the function that define this metric.

    Examples
    --------
    >>> METRICS["ece"]([0.75, 0.75], [True, False])
    0.25
    """

    name: str
    symbol: str
    function: Callable[..., float]
    description: str
    citation: str = ""
    needs: Needs = "confidence"
    better: Literal["lower", "higher"] = "lower"
    largest: float = 1.0
    options: Mapping[str, object] = field(default_factory=dict)

    def __call__(self, first: ArrayLike, second: ArrayLike | None, **options: object) -> float:
        """Evaluate (probabilities, labels), (confidence, correct), or (in_domain, out_of_domain)."""
        return self.function(first, second, **{**self.options, **options})


_DESCRIPTIONS = {
    "accuracy": "fraction of samples whose most probable class is the label",
    "ece": "mean gap between confidence and accuracy over 15 bins of equal width",
    "ece_mass": "mean gap between confidence and accuracy over 15 bins of equal count",
    "ece_kde": "mean gap between confidence and accuracy from kernel density estimates",
    "ks": "largest gap between cumulative confidence and cumulative accuracy",
    "classwise_ece": "mean over classes of the one-vs-rest ECE, 15 bins of equal width",
    "classwise_ece_sum": "sum over classes of the one-vs-rest ECE, 15 bins of equal width",
    "brier": "mean over samples of the squared error summed over classes",
    "nll": "mean negative logarithm of the probability of the label",
    "fpr_at_95_tpr": "fraction of out-of-domain samples accepted if 95 % of the in-domain samples are",
    "detection_error": "smallest mean of the two error rates over all thresholds",
    "auroc": "probability that an in-domain sample scores higher",
    "aupr_in": "average precision of detecting in-domain samples by high scores",
    "aupr_out": "average precision of detecting out-of-domain samples by low scores",
}
_HIGHER_IS_BETTER = ("accuracy", "auroc", "aupr_in", "aupr_out")


def _metric(name: str, symbol: str, function: Callable[..., float], citation: str = "", **others: Any) -> Metric:
    better: Literal["lower", "higher"] = "higher" if name in _HIGHER_IS_BETTER else "lower"
    return Metric(name, symbol, function, _DESCRIPTIONS[name], citation, better=better, **others)


_ece, _classwise = expected_calibration_error, classwise_calibration_error
_whole = partial(_metric, needs="distribution")
_ood = partial(_metric, needs="in and out of domain")
_ROWS = (
    _metric("accuracy", "Accuracy", accuracy),
    _metric("ece", "ECE", _ece, _NAEINI),
    _metric("ece_mass", "ECE (equal mass)", _ece, _NGUYEN, options={"binning": "mass"}),
    _metric("ece_kde", "ECE-KDE", expected_calibration_error_kde, _ZHANG),
    _metric("ks", "KS", kolmogorov_smirnov_error, _GUPTA),
    _whole("classwise_ece", "cwECE", _classwise, _KULL),
    _whole("classwise_ece_sum", "cwECE (sum)", _classwise, _KULL, largest=2.0, options={"reduction": "sum"}),
    _whole("brier", "Brier", brier_score, _BRIER, largest=2.0),
    _whole("nll", "NLL", negative_log_likelihood, largest=-math.log(LIKELIHOOD_FLOOR)),
    _ood("fpr_at_95_tpr", "FPR@95", ood.fpr_at_95_tpr, _HENDRYCKS),
    _ood("detection_error", "Det. error", ood.detection_error, _LIANG),
    _ood("auroc", "AUROC", ood.auroc, _HENDRYCKS),
    _ood("aupr_in", "AUPR-In", ood.aupr_in, _HENDRYCKS),
    _ood("aupr_out", "AUPR-Out", ood.aupr_out, _HENDRYCKS),
)

METRICS: Mapping[str, Metric] = MappingProxyType({metric.name: metric for metric in _ROWS})
"""All metrics by name."""

OOD_METRICS: tuple[str, ...] = tuple(metric.name for metric in _ROWS if metric.needs == "in and out of domain")
"""The names of the metrics that compare two data sets."""


@dataclass(frozen=True)
class Evaluation:
    """All metrics of one classifier on one data set. Metrics that need the whole distribution may be ``None``."""

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
        ece_kde=expected_calibration_error_kde(score, correct) if kde else None,
        ks=kolmogorov_smirnov_error(score, correct),
        classwise_ece=classwise,
        classwise_ece_sum=classwise_sum,
        brier=brier,
        nll=nll,
    )
