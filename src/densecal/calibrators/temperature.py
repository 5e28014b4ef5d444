"""Temperature scaling: divide the logits by one temperature."""

from __future__ import annotations

from typing import ClassVar

from densecal.arrays import Array, softmax
from densecal.calibrators.base import Calibrator
from densecal.calibrators.citation import Citation
from densecal.calibrators.solvers.tempering import Loss, TemperedLoss, check_loss, solve_temperature


class TemperatureScaling(Calibrator):
    """Divide the logits by one temperature: softmax(z / T).

    T > 1 lowers the confidence of an over-confident classifier, T < 1 raises that of an under-confident one. The order
    of the classes, and therefore the accuracy, does not change.

    Parameters
    ----------
    loss : {"nll", "brier"}, default "nll"
        The loss to minimise on the validation set: the negative log-likelihood (as in Guo et al.) or the squared error
        (as in the DAC paper). The squared error hardly counts confident mistakes, so it can sharpen an over-confident
        classifier.

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

    def __init__(self, loss: Loss = "nll") -> None:
        self.loss = loss

    @property
    def fit_loss(self) -> str:  # type: ignore[override]
        """The loss that the fit minimises."""
        return self.loss

    def _fit(self, logits: Array, labels: Array) -> None:
        check_loss(self.loss)
        self.temperature_ = solve_temperature(TemperedLoss(logits, labels, self.loss))

    def _probabilities(self, logits: Array) -> Array:
        return softmax(logits, self.temperature_)
