"""Matrix scaling with off-diagonal and intercept regularisation (MS-ODIR)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from densecal.arrays import Array, asarray_like, namespace, softmax, to_numpy
from densecal.calibrators.base import Calibrator
from densecal.calibrators.citation import Citation
from densecal.calibrators.solvers.affine import minimise, prepare, residuals, variances
from densecal.calibrators.solvers.logit_rows import centre_rows, warn_of_missing_classes
from densecal.calibrators.solvers.masks import fill_masked, hide_masked, mask_gap
from densecal.calibrators.solvers.temperature_fit import solve_temperature
from densecal.calibrators.temperature import TemperedLoss

OFF_DIAGONAL_PENALTIES = (100.0, 10.0, 1.0, 0.1, 0.01, 0.001)
BIAS_PENALTIES = (0.001, 0.1, 10.0)
SEARCH_TOLERANCE = 1e-5
FINAL_TOLERANCE = 1e-8
LARGE_PRODUCT = 2e9
"""Multiplications per pass, N C^2, above which one hold-out split replaces the folds."""


class WeightedSamples(NamedTuple):
    """Centred logits, labels, and weights whose mean is 1."""

    logits: Array
    labels: Array
    weights: Array


class MatrixScaling(Calibrator):
    r"""Apply a regularised linear map to the logits: softmax(W z + b) (DIR, MS-ODIR).

    .. math::

        \frac{1}{N} \sum_i -\log p_{i, y_i}
        + \frac{\lambda}{C (C - 1)} \sum_{c \ne d} W_{cd}^2 + \frac{\mu}{C} \sum_c b_c^2

    The problem is convex. It is solved by L-BFGS with the analytic gradient and a diagonal preconditioner, starting at
    the solution of temperature scaling. The two penalties are chosen by cross-validation. The search lowers
    :math:`\lambda / (C (C - 1))` from 100 to 0.001 in powers of ten, at :math:`\mu / C` = 0.001 and with warm starts,
    until the held-out likelihood gets worse. It then tries 0.1 and 10 for :math:`\mu / C`. These grids are per squared
    weight, so they do not depend on the number of classes.

    If N C^2 exceeds 2e9, the search uses a single hold-out split of 20 % instead of folds.

    The mean of each row of logits is subtracted first, so the result does not depend on a constant added to a row. The
    predicted class can change. A logit 300 temperatures or more below the largest of its row masks its class: the
    probability is zero.

    Parameters
    ----------
    off_diagonal_penalty, bias_penalty : float, optional
        :math:`\lambda` and :math:`\mu`. By default, they are chosen by cross-validation.
    folds : int, default 3
        Number of folds of the cross-validation.

    Attributes
    ----------
    matrix_, biases_ : ndarray of shape (n_classes, n_classes), ndarray of shape (n_classes,)
        W and b.
    off_diagonal_penalty_, bias_penalty_ : float
        The :math:`\lambda` and :math:`\mu` of the fit.
    mask_gap_ : float
        How far below the largest of its row a logit masks its class.

    Examples
    --------
    >>> logits = [[4.0, 0.0]] * 4
    >>> calibrator = MatrixScaling().fit(logits, [0, 0, 0, 1])
    >>> calibrator.predict_proba(logits)[0].round(2)
    array([0.75, 0.25])
    """

    short_name: ClassVar[str] = "dir"
    full_name: ClassVar[str] = "Matrix scaling with ODIR"
    accuracy_preserving: ClassVar[bool] = False
    weighted: ClassVar[bool] = True
    learned: ClassVar[tuple[str, ...]] = ("matrix_", "biases_", "off_diagonal_penalty_", "bias_penalty_", "mask_gap_")
    citation: ClassVar[Citation] = Citation(
        "Beyond Temperature Scaling: Obtaining Well-Calibrated Multiclass Probabilities with Dirichlet Calibration",
        "Kull, Perello-Nieto, Kängsepp, Silva Filho, Song, Flach",
        "NeurIPS",
        2019,
    )
    fit_loss: ClassVar[str] = "nll"

    def __init__(
        self, off_diagonal_penalty: float | None = None, bias_penalty: float | None = None, folds: int = 3
    ) -> None:
        self.off_diagonal_penalty = off_diagonal_penalty
        self.bias_penalty = bias_penalty
        self.folds = folds

    def _fit(self, logits: Array, labels: Array, weights: Array | None = None) -> None:
        if self.folds < 2:
            raise ValueError(f"folds must be at least 2, got {self.folds}.")
        warn_of_missing_classes(labels, self.n_classes_, "get low probabilities")
        if weights is None:
            weights = np.ones(logits.shape[0])
        counted = np.flatnonzero(weights > 0)
        if len(counted) < len(weights):
            logits, labels, weights = logits[counted], labels[counted], weights[counted]
        logits, labels, weights = prepare(logits, labels, weights)
        samples = WeightedSamples(logits, labels, asarray_like(weights / weights.mean(), logits))
        tempered = TemperedLoss(logits, labels, "nll")
        temperature = solve_temperature(tempered, weights=to_numpy(weights))
        start = np.append(np.eye(self.n_classes_) / temperature, np.zeros((1, self.n_classes_)))
        if tempered.share_of_mistakes():
            per_weight, per_bias = self._search(samples, start)
            tolerance = SEARCH_TOLERANCE if _is_large(logits) else FINAL_TOLERANCE
            solution = fit_matrix(samples, per_weight, per_bias, start, tolerance)
        else:
            # The likelihood has no optimum: every larger multiple of the identity is better.
            (per_weight, *_), (per_bias, *_) = self._candidates()
            solution = start
        self.matrix_, self.biases_ = _split(solution, self.n_classes_)
        self.off_diagonal_penalty_ = per_weight * self._off_diagonals
        self.bias_penalty_ = per_bias * self.n_classes_
        self.mask_gap_ = mask_gap(temperature)

    def _probabilities(self, logits: Array) -> Array:
        transposed, biases = asarray_like(self.matrix_.T, logits), asarray_like(self.biases_, logits)
        filled, masked = fill_masked(logits, self.mask_gap_)
        return softmax(hide_masked(centre_rows(filled) @ transposed + biases, masked))

    @property
    def _off_diagonals(self) -> int:
        return self.n_classes_ * (self.n_classes_ - 1)

    def _candidates(self) -> tuple[Sequence[float], Sequence[float]]:
        """Return the penalties per squared weight and per squared bias to choose from: the given ones, if any."""
        weight, bias = self.off_diagonal_penalty, self.bias_penalty
        weights = OFF_DIAGONAL_PENALTIES if weight is None else (weight / self._off_diagonals,)
        return weights, BIAS_PENALTIES if bias is None else (bias / self.n_classes_,)

    def _search(self, samples: WeightedSamples, start: Any) -> tuple[float, float]:
        """Return the penalties per squared weight and per squared bias."""
        weights, biases = self._candidates()
        n_samples = samples.logits.shape[0]
        if len(weights) == len(biases) == 1 or n_samples < 2 * self.folds:
            return weights[0], biases[-1]  # with too few samples for a search, use the strongest penalties
        # Adjacent rows, which share a class, are in different folds.
        fold = np.arange(n_samples) % (5 if _is_large(samples.logits) else self.folds)
        n_splits = 1 if _is_large(samples.logits) else self.folds
        splits = [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in range(n_splits)]
        paths = [start.copy() for _ in splits]

        def held_out(per_weight: float, per_bias: float) -> float:
            losses = []
            for number, (inner, outer) in enumerate(splits):
                fitted, held = (WeightedSamples(*(part[rows] for part in samples)) for rows in (inner, outer))
                paths[number] = fit_matrix(fitted, per_weight, per_bias, paths[number])
                losses.append(matrix_loss(paths[number], held, 0.0, 0.0)[0])
            return float(np.mean(losses))

        per_weight = _walk(weights, lambda penalty: held_out(penalty, biases[0]))
        return per_weight, _walk(biases, lambda penalty: held_out(per_weight, penalty))


def _walk(penalties: Sequence[float], held_out: Callable[[float], float]) -> float:
    """Return the last penalty before the held-out loss stops decreasing."""
    best, best_loss = penalties[0], np.inf
    for penalty in penalties if len(penalties) > 1 else ():
        loss = held_out(penalty)
        if loss >= best_loss:
            break
        best, best_loss = penalty, loss
    return best


def fit_matrix(
    samples: WeightedSamples, per_weight: float, per_bias: float, start: Any, tolerance: float = SEARCH_TOLERANCE
) -> Any:
    """Minimise the penalised negative log-likelihood; return the flattened matrix followed by the biases."""
    return minimise(
        lambda parameters: matrix_loss(parameters, samples, per_weight, per_bias),
        start,
        _curvature(samples.logits, start, per_weight, per_bias),
        max_iterations=40 if _is_large(samples.logits) else 200,
        tolerance=tolerance,
    )


def matrix_loss(parameters: Any, samples: WeightedSamples, per_weight: float, per_bias: float) -> tuple[float, Any]:
    """Return the penalised mean negative log-likelihood of W z + b and its gradient."""
    logits, labels, weights = samples
    n_samples, classes = logits.shape
    matrix, biases = _split(parameters, classes)
    scores = logits @ asarray_like(matrix.T, logits) + asarray_like(biases, logits)
    loss, residual = residuals(scores, labels, weights)
    xp = namespace(logits)
    by_matrix = to_numpy(xp.matrix_transpose(residual) @ logits)
    gradient = np.append(by_matrix, to_numpy(xp.sum(residual, axis=0))).astype(np.float64)
    penalised = _penalties(classes, per_weight, per_bias) * parameters
    return loss / n_samples + float(penalised @ parameters), gradient / n_samples + 2 * penalised


def _curvature(logits: Array, start: Any, per_weight: float, per_bias: float) -> Any:
    xp = namespace(logits)
    samples, classes = logits.shape
    matrix, biases = _split(start, classes)
    variance = variances(logits @ asarray_like(matrix.T, logits) + asarray_like(biases, logits))
    by_matrix = xp.matrix_transpose(variance) @ (logits * logits)
    likelihood = np.append(to_numpy(by_matrix), to_numpy(xp.sum(variance, axis=0))) / samples
    return likelihood.astype(np.float64) + 2 * _penalties(classes, per_weight, per_bias)


def _penalties(classes: int, per_weight: float, per_bias: float) -> Any:
    return np.append(per_weight * (1 - np.eye(classes)), np.full(classes, per_bias))


def _split(parameters: Any, classes: int) -> tuple[Any, Any]:
    return parameters[: classes * classes].reshape(classes, classes), parameters[classes * classes :]


def _is_large(logits: Array) -> bool:
    return bool(logits.shape[0] * logits.shape[1] ** 2 > LARGE_PRODUCT)
