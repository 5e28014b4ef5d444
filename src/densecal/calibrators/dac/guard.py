"""What a fit of DAC must not hide: unused distances, false certainty, shifted data that harm the clean fit."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from densecal.arrays import Array, asarray_like, namespace, softmax, to_numpy
from densecal.calibrators.solvers.tempered_loss import TemperedLoss
from densecal.calibrators.temperature import solve_temperature
from densecal.errors import CalibrationWarning
from densecal.metrics import expected_calibration_error
from densecal.metrics.resampling import Resamples

NEARLY_CERTAIN = 0.25
"""Below this share of the plain temperature a confidence is as good as 1."""
_REPORTED_SHARE = 0.01
_NEGLIGIBLE = 1e-3
_RESAMPLES = 100


def warn_if_distances_are_unused(distance_part: float, bias: float, *, tried_shift: bool) -> None:
    """Warn if the layers add almost nothing to the mean temperature, and say what to do unless that was tried."""
    if distance_part >= _NEGLIGIBLE * (distance_part + bias):
        return
    advice = (
        " Fit it to stay calibrated under shift: give it labelled shifted data, such as perturbed copies of the "
        "validation inputs (fit(..., shifted=...); calibrate(..., perturb=True) makes them for images)."
    )
    _warn(
        "DAC found no use for the distances: all layer weights are (almost) zero, so it acts as temperature "
        f"scaling with T = {bias:.3g}. On clean validation data a good classifier's mistakes hardly depend on "
        f"its distances.{'' if tried_shift else advice}"
    )


def warn_if_certain(temperatures: Any, plain: float, importance: Mapping[str, float]) -> None:
    """Warn if a share of the validation inputs gets a temperature near zero.

    Parameters
    ----------
    temperatures : ndarray of shape (n_samples,)
        S(x) of the validation inputs.
    plain : float
        What temperature scaling found on them.
    importance : mapping of str to float
        Each layer's share.
    """
    share = float((temperatures < NEARLY_CERTAIN * plain).mean())
    if share < _REPORTED_SHARE:
        return
    nearest = max(importance, key=lambda layer: importance[layer])
    _warn(
        f"DAC gives {share:.0%} of the validation inputs less than a quarter of temperature scaling's temperature "
        f"({plain:.3g}), and so confidences of almost exactly 1: the fit saw no mistake among the inputs nearest "
        f"to the training data in {nearest!r}. With few validation samples that is chance. Leave that layer out, give "
        "more validation samples, or use 'ts'."
    )


class CleanCost(NamedTuple):
    """How much worse than temperature scaling clean data may get for the sake of shifted data.

    Attributes
    ----------
    ece : float
        Expected calibration error, as a share: 0.01 is one percentage point.
    nll : float
        Negative log-likelihood, in nats.
    """

    ece: float = 0.01
    nll: float = 0.02


def measure_clean_cost(logits: Array, labels: Array, temperatures: Any) -> dict[str, float]:
    """Return what a fit's temperatures cost on clean validation data against temperature scaling by NLL.

    The costs come with their standard errors, paired over the samples.
    """
    nll = TemperedLoss(logits, labels, "nll")
    plain = np.full(nll.samples, solve_temperature(nll))
    added = nll(1 / temperatures)[0] - nll(1 / plain)[0]
    correct = to_numpy(namespace(logits).argmax(logits, axis=1) == labels)
    draws = Resamples(nll.samples, _RESAMPLES, seed=0)
    fitted, scaled = (_top_confidence(logits, each) for each in (temperatures, plain))
    gaps = draws.replicates("ece", fitted, correct) - draws.replicates("ece", scaled, correct)
    return {
        "ece": expected_calibration_error(fitted, correct) - expected_calibration_error(scaled, correct),
        "ece_error": float(np.std(gaps)),
        "nll": float(added.mean()),
        "nll_error": float(added.std() / np.sqrt(len(added))),
    }


def accepts_cost(cost: Mapping[str, float], limit: CleanCost) -> bool:
    """Whether a fit stays within the price, as far as the validation set can tell; warn if it does not."""
    over = [name for name in CleanCost._fields if cost[name] - 2 * cost[f"{name}_error"] > getattr(limit, name)]
    if not over:
        return True
    figures = ", ".join(f"{name} {cost[name]:+.4f} (allowed {getattr(limit, name):+.4f})" for name in over)
    _warn(
        "Fitted with shifted data (shifted= or perturbed copies), DAC makes the clean validation set worse than "
        f"temperature scaling beyond max_clean_cost: {figures}. It returns the fit on clean data instead. Check that "
        "the shifted data belong to this classifier and their labels to them, or allow a higher max_clean_cost."
    )
    return False


def _top_confidence(logits: Array, temperatures: Any) -> Any:
    return to_numpy(softmax(logits / asarray_like(temperatures, logits)[:, None])).max(axis=1)


def _warn(message: str) -> None:
    warnings.warn(message, CalibrationWarning, stacklevel=6)
