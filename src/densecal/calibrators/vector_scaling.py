"""Vector scaling: a weight and a bias for each class."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from densecal.arrays import Array, asarray_like, namespace, row_blocks, softmax, to_numpy
from densecal.calibrators.base import Calibrator
from densecal.calibrators.citation import Citation
from densecal.calibrators.solvers.affine import WIDE_VALUES, minimise, prepare, residuals, variances
from densecal.calibrators.solvers.rows import (
    NUMPY_BLOCK_BYTES,
    TORCH_BLOCK_BYTES,
    by_row_blocks,
    centre_rows,
    warn_of_missing_classes,
)
from densecal.calibrators.solvers.tempering import TemperedLoss, solve_temperature


class VectorScaling(Calibrator):
    r"""Give each class a weight and a bias: softmax(w * z + b) (VS).

    The 2 C parameters minimise the negative log-likelihood, from temperature scaling's solution on. Each row of
    logits is centred at its mean first, so that a constant added to a row changes nothing. The predicted class can
    change. A class that never occurs in the validation set is learned to be almost impossible, with a warning.

    Attributes
    ----------
    weights_, biases_ : ndarray of shape (classes,)
        The factor and the offset of each class's logit.

    Examples
    --------
    >>> import numpy as np
    >>> logits = np.array([[4.0, 0.0]] * 4)
    >>> calibrator = VectorScaling().fit(logits, [0, 0, 0, 1])
    >>> calibrator.predict_proba(logits)[0].round(3)
    array([0.75, 0.25])
    """

    short_name: ClassVar[str] = "vs"
    full_name: ClassVar[str] = "Vector scaling"
    accuracy_preserving: ClassVar[bool] = False
    learned: ClassVar[tuple[str, ...]] = ("weights_", "biases_")
    citation: ClassVar[Citation] = Citation(
        "On Calibration of Modern Neural Networks", "Guo, Pleiss, Sun, Weinberger", "ICML", 2017
    )
    fit_loss: ClassVar[str] = "nll"

    weights_: Any
    biases_: Any

    def _fit(self, logits: Array, labels: Array) -> None:
        warn_of_missing_classes(labels, self.n_classes_, "are learned to be almost impossible")
        logits, labels = prepare(logits, labels)
        temperature = solve_temperature(TemperedLoss(logits, labels, "nll"))
        start = np.repeat([1 / temperature, 0.0], self.n_classes_)
        solution = minimise(
            lambda parameters: vector_loss(parameters, logits, labels),
            start,
            _curvature(logits, temperature),
            max_iterations=300,
            tolerance=1e-11 if logits.shape[0] * logits.shape[1] <= WIDE_VALUES else 1e-8,
        )
        self.weights_, self.biases_ = np.split(solution, 2)

    def _probabilities(self, logits: Array) -> Array:
        weights, biases = asarray_like(self.weights_, logits), asarray_like(self.biases_, logits)
        return by_row_blocks(lambda rows: softmax(centre_rows(rows) * weights + biases), logits)


def vector_loss(parameters: Any, logits: Array, labels: Array) -> tuple[float, Any]:
    """Return the mean negative log-likelihood of w * z + b and its gradient by (w, b)."""
    xp = namespace(logits)
    samples, classes = logits.shape
    weights, biases = asarray_like(parameters[:classes], logits), asarray_like(parameters[classes:], logits)
    loss, gradient = 0.0, np.zeros(2 * classes)
    for rows in _blocks(logits):
        block_loss, residual = residuals(logits[rows] * weights + biases, labels[rows])
        loss += block_loss
        gradient[:classes] += to_numpy(xp.sum(residual * logits[rows], axis=0))
        gradient[classes:] += to_numpy(xp.sum(residual, axis=0))
    return loss / samples, gradient / samples


def _curvature(logits: Array, temperature: float) -> Any:
    xp = namespace(logits)
    total = np.zeros((2, logits.shape[1]))
    for rows in _blocks(logits):
        variance = variances(logits[rows] / temperature)
        total[0] += to_numpy(xp.sum(variance * logits[rows] ** 2, axis=0))
        total[1] += to_numpy(xp.sum(variance, axis=0))
    return total.reshape(-1) / logits.shape[0]


def _blocks(logits: Array) -> Any:
    block_bytes = NUMPY_BLOCK_BYTES if isinstance(logits, np.ndarray) else TORCH_BLOCK_BYTES
    return row_blocks(logits.shape[0], logits.shape[1] * 8, block_bytes)
