"""Vector scaling: a weight and a bias per class."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from densecal.arrays import Array, asarray_like, logit_blocks, namespace, softmax, to_numpy
from densecal.calibrators.base import Calibrator
from densecal.calibrators.citation import Citation
from densecal.calibrators.solvers.affine import WIDE_VALUES, minimise, prepare, residuals, variances
from densecal.calibrators.solvers.logit_rows import centre_rows, warn_of_missing_classes
from densecal.calibrators.solvers.masks import fill_masked, hide_masked, mask_gap
from densecal.calibrators.solvers.temperature_fit import solve_temperature
from densecal.calibrators.temperature import TemperatureScaling, TemperedLoss


class VectorScaling(Calibrator):
    r"""Apply a weight and a bias per class to the logits: softmax(w * z + b) (VS).

    The 2 C parameters minimise the negative log-likelihood, starting at the solution of temperature scaling. The mean
    of each row of logits is subtracted first, so the result does not depend on a constant added to a row. The predicted
    class can change. A class that is missing from the validation set gets probabilities near zero, with a warning.
    A logit 300 temperatures or more below the largest of its row masks its class: the probability is zero.

    Attributes
    ----------
    weights_, biases_ : ndarray of shape (n_classes,)
        The weight and the bias of each class.
    mask_gap_ : float
        How far below the largest of its row a logit masks its class.

    Examples
    --------
    >>> logits = [[4.0, 0.0]] * 4
    >>> calibrator = VectorScaling().fit(logits, [0, 0, 0, 1])
    >>> calibrator.predict_proba(logits)[0].round(3)
    array([0.75, 0.25])
    """

    short_name: ClassVar[str] = "vs"
    full_name: ClassVar[str] = "Vector scaling"
    accuracy_preserving: ClassVar[bool] = False
    learned: ClassVar[tuple[str, ...]] = ("weights_", "biases_", "mask_gap_")
    citation: ClassVar[Citation] = TemperatureScaling.citation
    fit_loss: ClassVar[str] = "nll"

    def _fit(self, logits: Array, labels: Array) -> None:
        warn_of_missing_classes(labels, self.n_classes_, "get probabilities near zero")
        logits, labels = prepare(logits, labels)
        tempered = TemperedLoss(logits, labels, "nll")
        temperature = solve_temperature(tempered)
        solution = np.repeat([1 / temperature, 0.0], self.n_classes_)
        if tempered.share_of_mistakes():  # Otherwise the likelihood has no optimum: larger weights are always better.
            solution = minimise(
                lambda parameters: vector_loss(parameters, logits, labels),
                solution,
                _curvature(logits, temperature),
                max_iterations=300,
                tolerance=1e-11 if logits.shape[0] * logits.shape[1] <= WIDE_VALUES else 1e-8,
            )
        self.weights_, self.biases_ = np.split(solution, 2)
        self.mask_gap_ = mask_gap(temperature)

    def _probabilities(self, logits: Array) -> Array:
        weights, biases = asarray_like(self.weights_, logits), asarray_like(self.biases_, logits)
        filled, masked = fill_masked(logits, self.mask_gap_)
        return softmax(hide_masked(centre_rows(filled) * weights + biases, masked))


def vector_loss(parameters: Any, logits: Array, labels: Array) -> tuple[float, Any]:
    """Return the mean negative log-likelihood of w * z + b and its gradient with respect to (w, b)."""
    xp = namespace(logits)
    samples, classes = logits.shape
    weights, biases = asarray_like(parameters[:classes], logits), asarray_like(parameters[classes:], logits)
    loss, gradient = 0.0, np.zeros(2 * classes)
    for rows in logit_blocks(logits):
        block_loss, residual = residuals(logits[rows] * weights + biases, labels[rows])
        loss += block_loss
        gradient[:classes] += to_numpy(xp.sum(residual * logits[rows], axis=0))
        gradient[classes:] += to_numpy(xp.sum(residual, axis=0))
    return loss / samples, gradient / samples


def _curvature(logits: Array, temperature: float) -> Any:
    xp = namespace(logits)
    total = np.zeros((2, logits.shape[1]))
    for rows in logit_blocks(logits):
        variance = variances(logits[rows] / temperature)
        total[0] += to_numpy(xp.sum(variance * logits[rows] ** 2, axis=0))
        total[1] += to_numpy(xp.sum(variance, axis=0))
    return total.reshape(-1) / logits.shape[0]
