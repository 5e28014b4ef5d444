"""Every measure as data: what it is called, what it needs, which way is better."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from densecal.calibrators.citation import Citation
from densecal.metrics import calibration_error, kernel_density, ood, proper_scores

Needs = Literal["confidence", "distribution", "in and out of domain"]

_ECE = Citation(
    "Obtaining Well Calibrated Probabilities Using Bayesian Binning", "Naeini, Cooper, Hauskrecht", "AAAI", 2015
)
_MASS = Citation(
    "Posterior Calibration and Exploratory Analysis for Natural Language Processing Models",
    "Nguyen, O'Connor",
    "EMNLP",
    2015,
)
_KDE = Citation(
    "Mix-n-Match: Ensemble and Compositional Methods for Uncertainty Calibration in Deep Learning",
    "Zhang, Kailkhura, Han",
    "ICML",
    2020,
)
_CLASSWISE = Citation(
    "Beyond Temperature Scaling: Obtaining Well-Calibrated Multi-Class Probabilities with Dirichlet Calibration",
    "Kull, Perello-Nieto, Kängsepp, Silva Filho, Song, Flach",
    "NeurIPS",
    2019,
)
_KS = Citation(
    "Calibration of Neural Networks Using Splines",
    "Gupta, Rahimi, Ajanthan, Mensink, Sminchisescu, Hartley",
    "ICLR",
    2021,
)
_BRIER = Citation(
    "Verification of Forecasts Expressed in Terms of Probability", "Brier", "Monthly Weather Review", 1950
)
_BASELINE = Citation(
    "A Baseline for Detecting Misclassified and Out-of-Distribution Examples in Neural Networks",
    "Hendrycks, Gimpel",
    "ICLR",
    2017,
)
_ODIN = Citation(
    "Enhancing the Reliability of Out-of-Distribution Image Detection in Neural Networks",
    "Liang, Li, Srikant",
    "ICLR",
    2018,
)


@dataclass(frozen=True)
class Metric:
    """A measure and what one has to know to show it.

    Calling it calls its function with its options.

    Attributes
    ----------
    name
        The key in :data:`METRICS` and in a row of :func:`~densecal.metrics.evaluate`.
    symbol
        The column head.
    better
        ``"lower"`` or ``"higher"``.
    needs
        ``"confidence"``: top-1 confidence is enough. ``"distribution"``: all classes' probabilities.
        ``"in and out of domain"``: the scores of two data sets.
    description
        The definition in one line.
    paper
        Where it was published.
    largest
        The largest value it can take; the smallest is 0.
    options
        The function's options that make it this measure.

    Examples
    --------
    >>> METRICS["ece"]([0.75, 0.75], [True, False])
    0.25
    """

    name: str
    symbol: str
    function: Callable[..., float]
    better: Literal["lower", "higher"]
    needs: Needs
    description: str
    paper: Citation | None = None
    largest: float = 1.0
    options: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, first: object, second: object, **options: Any) -> float:
        """Measure (probabilities, labels), (confidence, correct), or (in_domain, out_of_domain)."""
        return self.function(first, second, **{**self.options, **options})


_ROWS = (
    Metric(
        "accuracy",
        "Accuracy",
        proper_scores.accuracy,
        "higher",
        "confidence",
        "share of samples whose most probable class is the label",
    ),
    Metric(
        "ece",
        "ECE",
        calibration_error.expected_calibration_error,
        "lower",
        "confidence",
        "mean gap between confidence and accuracy over 15 bins of equal width",
        _ECE,
    ),
    Metric(
        "ece_mass",
        "ECE (equal mass)",
        calibration_error.expected_calibration_error,
        "lower",
        "confidence",
        "mean gap between confidence and accuracy over 15 bins of equal count",
        _MASS,
        options={"binning": "mass"},
    ),
    Metric(
        "ece_kde",
        "ECE-KDE",
        kernel_density.expected_calibration_error_kde,
        "lower",
        "confidence",
        "mean gap between confidence and accuracy from kernel density estimates",
        _KDE,
    ),
    Metric(
        "ks",
        "KS",
        calibration_error.kolmogorov_smirnov_error,
        "lower",
        "confidence",
        "largest gap between cumulative confidence and cumulative accuracy",
        _KS,
    ),
    Metric(
        "classwise_ece",
        "cwECE",
        calibration_error.classwise_calibration_error,
        "lower",
        "distribution",
        "mean over classes of each class's one-against-all ECE, 15 bins of equal width",
        _CLASSWISE,
    ),
    Metric(
        "classwise_ece_sum",
        "cwECE (sum)",
        calibration_error.classwise_calibration_error,
        "lower",
        "distribution",
        "sum over classes of each class's one-against-all ECE, 15 bins of equal width",
        _CLASSWISE,
        largest=2.0,
        options={"reduction": "sum"},
    ),
    Metric(
        "brier",
        "Brier",
        proper_scores.brier_score,
        "lower",
        "distribution",
        "mean over samples of the squared error summed over classes",
        _BRIER,
        largest=2.0,
    ),
    Metric(
        "nll",
        "NLL",
        proper_scores.negative_log_likelihood,
        "lower",
        "distribution",
        "mean of minus the logarithm of the label's probability",
        largest=-math.log(proper_scores.SMALLEST_PROBABILITY),
    ),
    Metric(
        "fpr_at_95_tpr",
        "FPR@95",
        ood.fpr_at_95_tpr,
        "lower",
        "in and out of domain",
        "share of out-of-domain samples accepted where 95 % of the in-domain samples are",
        _BASELINE,
    ),
    Metric(
        "detection_error",
        "Det. error",
        ood.detection_error,
        "lower",
        "in and out of domain",
        "smallest mean of the two error rates over all thresholds",
        _ODIN,
    ),
    Metric(
        "auroc",
        "AUROC",
        ood.auroc,
        "higher",
        "in and out of domain",
        "chance that an in-domain sample has the higher score",
        _BASELINE,
    ),
    Metric(
        "aupr_in",
        "AUPR-In",
        ood.aupr_in,
        "higher",
        "in and out of domain",
        "average precision of finding in-domain samples by high scores",
        _BASELINE,
    ),
    Metric(
        "aupr_out",
        "AUPR-Out",
        ood.aupr_out,
        "higher",
        "in and out of domain",
        "average precision of finding out-of-domain samples by low scores",
        _BASELINE,
    ),
)

METRICS: Mapping[str, Metric] = MappingProxyType({metric.name: metric for metric in _ROWS})
"""Every measure by its name."""
