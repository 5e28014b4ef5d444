"""What a fit of DAC must not hide: unused distances, false certainty, shifted data that harm the clean fit."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from densecal.errors import CalibrationWarning

NEARLY_CERTAIN = 0.25
"""Below this share of the plain temperature a confidence is as good as 1."""
_REPORTED_SHARE = 0.01
_NEGLIGIBLE = 1e-3


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


def keeps_clean_data_calibrated(with_shift: float, uncalibrated: float, loss: str) -> bool:
    """Whether a shift fit leaves the clean validation set no worse than no calibration; warn if it does not."""
    if with_shift <= uncalibrated:
        return True
    _warn(
        "Fitted with shifted data (shifted= or perturbed copies), DAC made the clean validation set worse than "
        f"the uncalibrated logits ({loss} loss {with_shift:.4g} against {uncalibrated:.4g}); it returns the fit on "
        "clean data instead. Check that these data belong to this classifier and their labels to them; with a few "
        "hundred validation samples it may be chance."
    )
    return False


def _warn(message: str) -> None:
    warnings.warn(message, CalibrationWarning, stacklevel=6)
