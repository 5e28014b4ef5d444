"""Metrics of calibration and out-of-domain detection, with bootstrap intervals.

Metrics are functions of (probabilities, labels), of (confidence, correct), or of (in_domain, out_of_domain). They take
NumPy arrays or torch tensors on any device and return a Python float.
"""

from densecal.metrics.bootstrap import (
    Interval,
    bootstrap_interval,
    group_weights,
    macro_bootstrap,
)
from densecal.metrics.calibration_error import (
    ReliabilityCurve,
    classwise_calibration_error,
    expected_calibration_error,
    kolmogorov_smirnov_error,
    reliability_curve,
)
from densecal.metrics.defaults import LEVEL, N_BINS, N_RESAMPLES
from densecal.metrics.kernel_density import expected_calibration_error_kde
from densecal.metrics.ood import (
    OODScores,
    aupr_in,
    aupr_out,
    auroc,
    detection_error,
    fpr_at_95_tpr,
    ood_scores,
)
from densecal.metrics.proper_scores import accuracy, brier_score, negative_log_likelihood
from densecal.metrics.resampling import Resamples
from densecal.metrics.state import MetricState
from densecal.metrics.summary import Evaluation, evaluate
from densecal.metrics.table import METRICS, OOD_METRICS, Metric

__all__ = [
    "LEVEL",
    "METRICS",
    "N_BINS",
    "N_RESAMPLES",
    "OOD_METRICS",
    "Evaluation",
    "Interval",
    "Metric",
    "MetricState",
    "OODScores",
    "ReliabilityCurve",
    "Resamples",
    "accuracy",
    "aupr_in",
    "aupr_out",
    "auroc",
    "bootstrap_interval",
    "brier_score",
    "classwise_calibration_error",
    "detection_error",
    "evaluate",
    "expected_calibration_error",
    "expected_calibration_error_kde",
    "fpr_at_95_tpr",
    "group_weights",
    "kolmogorov_smirnov_error",
    "macro_bootstrap",
    "negative_log_likelihood",
    "ood_scores",
    "reliability_curve",
]
