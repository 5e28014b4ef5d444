"""Temperature scaling: one number divides every logit."""

from __future__ import annotations

import warnings
from typing import ClassVar

import numpy as np
from scipy.optimize import brentq

from densecal.arrays import Array, softmax
from densecal.calibrators.base import Calibrator
from densecal.calibrators.citation import Citation
from densecal.calibrators.solvers.tempered_loss import Loss, TemperedLoss, check_loss
from densecal.errors import CalibrationWarning

LOG_TEMPERATURE_BOUND = float(np.log(1e4))
PILOT_ROWS = 2000
CERTAIN = 1e-6
"""How near to the loss of full certainty a loss counts as the same."""


class TemperatureScaling(Calibrator):
    """Divide every logit by one temperature: softmax(z / T).

    T > 1 makes an over-confident classifier humbler, T < 1 an under-confident one bolder. The order of the
    classes, and so the accuracy, stays.

    Parameters
    ----------
    loss : {"brier", "nll"}, default "brier"
        What T minimises on the validation set: the squared error (the DAC paper's choice) or the negative
        log-likelihood (Guo et al.'s).

    Attributes
    ----------
    temperature_ : float
        The fitted temperature.

    Examples
    --------
    >>> import numpy as np
    >>> logits = np.array([[4.0, 0.0]] * 4)
    >>> calibrator = TemperatureScaling().fit(logits, [0, 0, 0, 1])
    >>> calibrator.predict_proba(logits)[0].round(3)
    array([0.75, 0.25])
    """

    short_name: ClassVar[str] = "ts"
    full_name: ClassVar[str] = "Temperature scaling"
    accuracy_preserving: ClassVar[bool] = True
    learned: ClassVar[tuple[str, ...]] = ("temperature_",)
    citation: ClassVar[Citation] = Citation(
        "On Calibration of Modern Neural Networks", "Guo, Pleiss, Sun, Weinberger", "ICML", 2017
    )

    temperature_: float

    def __init__(self, loss: Loss = "brier") -> None:
        self.loss = loss

    @property
    def fit_loss(self) -> str:  # type: ignore[override]
        """The loss that the temperature minimises."""
        return self.loss

    def _fit(self, logits: Array, labels: Array) -> None:
        check_loss(self.loss)
        self.temperature_ = solve_temperature(TemperedLoss(logits, labels, self.loss))

    def _probabilities(self, logits: Array) -> Array:
        return softmax(logits / self.temperature_)


def solve_temperature(tempered: TemperedLoss) -> float:
    """Find the temperature of least mean loss, on its logarithm and within bounds.

    The slope's sign change is bracketed outwards from T = 1 on a few rows, then around that pilot's answer on all
    rows, and closed in with Brent's method: no step can leave the bracket, so the answer cannot diverge.
    """
    pilot_rows = slice(None, None, max(1, tempered.samples // PILOT_ROWS))
    start = _solve_log_temperature(tempered.subset(pilot_rows), 0.0, 0.5)
    log_temperature = _solve_log_temperature(tempered, start, 0.02)
    temperature = float(np.exp(log_temperature))
    if tempered.every_label_wins():
        _warn_of_bound(temperature, "smallest", "every validation sample is classified correctly")
    elif log_temperature >= LOG_TEMPERATURE_BOUND:
        _warn_of_bound(temperature, "largest", "the logits say nothing about the labels")
    elif tempered.loss == "brier" and _is_certain(tempered, temperature):
        likeliest = solve_temperature(tempered.subset(slice(None), "nll"))
        # Never worse than the uncalibrated logits, whatever measures it.
        temperature = min((likeliest, 1.0), key=lambda one: float(tempered(1 / one)[0].mean()))
        warnings.warn(
            f"The validation set has so few mistakes, {tempered.share_of_mistakes():.2%}, that the squared error is "
            f"least for full certainty. The temperature was fitted by likelihood instead and is {temperature:.3g}. Use "
            "a larger validation set.",
            CalibrationWarning,
            stacklevel=6,
        )
    return temperature


def _is_certain(tempered: TemperedLoss, temperature: float) -> bool:
    """Whether every confidence is 1 at this temperature: each mistake then costs 2, and nothing else does."""
    return abs(float(tempered(1 / temperature)[0].mean()) - 2 * tempered.share_of_mistakes()) < CERTAIN


def _warn_of_bound(temperature: float, side: str, reason: str) -> None:
    warnings.warn(
        f"The temperature went to the {side} useful value, {temperature:g}, because {reason}. "
        "Use a larger validation set that the classifier was not trained on.",
        CalibrationWarning,
        stacklevel=6,
    )


def _solve_log_temperature(tempered: TemperedLoss, start: float, step: float) -> float:
    slopes: dict[float, float] = {}

    def slope(log_temperature: float) -> float:
        if log_temperature not in slopes:
            inverse = np.exp(-log_temperature)
            # d/d log T = -u d/du; the factor u is kept, so that both ends of the bracket are on one scale.
            slopes[log_temperature] = -inverse * float(tempered(inverse)[1].mean())
        return slopes[log_temperature]

    # Walk downhill with growing steps until the slope changes its sign.
    here = float(np.clip(start, -LOG_TEMPERATURE_BOUND, LOG_TEMPERATURE_BOUND))
    direction = -np.sign(slope(here))
    if direction == 0:
        return here
    while abs(here) < LOG_TEMPERATURE_BOUND or direction * here < 0:
        there = float(np.clip(here + direction * step, -LOG_TEMPERATURE_BOUND, LOG_TEMPERATURE_BOUND))
        if slope(there) * direction >= 0:
            return float(brentq(slope, here, there, xtol=1e-5))
        here, step = there, step * 2
    return here
