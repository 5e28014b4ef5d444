"""What a fit of DAC may find that its user must hear of: unused distances, false certainty, harmful shifted data."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from densecal.errors import CalibrationWarning

NEARLY_CERTAIN = 0.25
"""Below this share of the plain temperature a confidence is as good as 1."""
WORTH_TELLING = 0.01
"""The share of validation inputs from which on it is told."""


def warn_of_unused_distances(temperature: float, *, tried_shift: bool) -> None:
    """Say that all weights went to zero, and what to do about it unless that was tried."""
    advice = (
        " Fit it for where the data will go: give it labelled data that have moved, such as perturbed copies of the "
        "validation inputs (fit(..., shifted=...); calibrate(..., perturb=True) makes them for images)."
    )
    _warn(
        "DAC found no use for the distances: all layer weights are (almost) zero, so it acts as temperature "
        f"scaling with T = {temperature:.3g}. On clean validation data a good classifier's mistakes hardly depend on "
        f"its distances.{'' if tried_shift else advice}"
    )


def warn_of_certainty(temperatures: Any, plain: float, importance: Mapping[str, float]) -> None:
    """Say so when a share of the validation inputs gets a temperature near zero.

    Parameters
    ----------
    temperatures : ndarray of shape (samples,)
        S(x) of the validation inputs.
    plain : float
        What temperature scaling found on them.
    importance : mapping of str to float
        Each layer's share.
    """
    share = float((temperatures < NEARLY_CERTAIN * plain).mean())
    if share < WORTH_TELLING:
        return
    nearest = max(importance, key=lambda layer: importance[layer])
    _warn(
        f"DAC gives {share:.0%} of the validation inputs less than a quarter of temperature scaling's temperature "
        f"({plain:.3g}), and so confidences of almost exactly 1: the fit saw no mistake among the inputs nearest "
        f"to the training data in {nearest!r}. With few validation samples that is chance. Leave that layer out, give "
        "more validation samples, or use 'ts'."
    )


def warn_of_harmful_shift(loss: str, with_shift: float, uncalibrated: float) -> None:
    """Say that the shifted data made the clean validation set worse than no calibration, so they were left out."""
    _warn(
        "Fitted with data that have moved, shifted= or perturbed copies, DAC made the clean validation set worse than "
        f"the uncalibrated logits ({loss} loss {with_shift:.4g} against {uncalibrated:.4g}); it returns the fit on "
        "clean data instead. Look whether these data belong to this classifier and their labels to them; with a few "
        "hundred validation samples it may be chance."
    )


def _warn(message: str) -> None:
    warnings.warn(message, CalibrationWarning, stacklevel=5)
