"""The shift fit: DAC's temperature learned on clean and shifted data together.

log S(x) = b + sum_l w_l x_l(x) with w_l >= 0, where x_l is the excess of the distance in layer l over what clean
inputs of the same confidence have. The slopes w are fitted on clean and shifted validation data together; the level b
is then set mostly by the clean data. ``reproduction/studies/shift_fit.py`` chose the constants.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from densecal.arrays import Array, asarray_like, to_numpy
from densecal.calibrators.dac.shifted_data import ShiftedData
from densecal.calibrators.dac.temperature import Excess
from densecal.calibrators.solvers.bounded_newton import Descent, bounded_newton
from densecal.calibrators.solvers.tempering import Loss, TemperedLoss, solve_temperature

CLEAN_SHARE = 0.5
"""How much of the loss the clean data carry while the slopes are fitted."""
CLEAN_LEVEL = 0.8
"""How far the level goes from the best for clean and shifted data together (0) to the best for clean data alone (1)."""


@dataclass(frozen=True)
class ShiftFit:
    """What the shift fit learned; the loss is the mean over the clean validation set."""

    weights: Any
    bias: float
    loss: float
    n_iterations: int
    converged: bool
    excess: Excess
    mean_excess: Any
    clean_temperatures: Any


def fit_shift(logits: Array, labels: Array, scores: Array, shifted: ShiftedData, loss: Loss) -> ShiftFit:
    """Fit the slopes to clean and shifted data, and the level mostly to the clean data."""
    excess = Excess.learn(logits, scores)
    clean = to_numpy(excess(logits, scores)).astype(np.float64)
    far = to_numpy(excess(shifted.logits, shifted.scores)).astype(np.float64)
    shifted_loss = TemperedLoss(shifted.logits, shifted.labels, "nll")
    found = fit_slopes(TemperedLoss(logits, labels, "nll"), clean, shifted_loss, far)
    weights, level = np.array(found.point[:-1]), float(found.point[-1])
    rise = clean @ weights
    level = refit_intercept(logits, labels, rise + level, level, loss)
    temperatures = np.exp(level + rise)
    return ShiftFit(
        weights=weights,
        bias=float(np.exp(level)),
        loss=float(TemperedLoss(logits, labels, loss)(1 / temperatures)[0].mean()),
        n_iterations=found.iterations,
        converged=found.converged,
        excess=excess,
        mean_excess=far.mean(axis=0),
        clean_temperatures=temperatures,
    )


def fit_slopes(clean: TemperedLoss, clean_excess: Any, shifted: TemperedLoss, shifted_excess: Any) -> Descent:
    """Minimise the mean NLL of clean and shifted data, half each, over the level b and the slopes w >= 0.

    Returns
    -------
    Descent
        Its point is (w_1 ... w_L, b).
    """
    parts = [
        (clean, _with_ones(clean_excess), CLEAN_SHARE / clean.samples),
        (shifted, _with_ones(shifted_excess), (1 - CLEAN_SHARE) / shifted.samples),
    ]

    def derivatives(point: Any) -> tuple[float, Any, Any]:
        value, gradient, hessian = 0.0, np.zeros_like(point), np.zeros((len(point), len(point)))
        for tempered, design, weight in parts:
            inverse = np.exp(-(design @ point))
            loss, slope, curvature = tempered.with_curvature(inverse)
            # With h = log S and u = exp(-h): dL/dh = -u dL/du and d2L/dh2 = u^2 d2L/du2 + u dL/du.
            by_h, by_hh = -inverse * slope, inverse**2 * curvature + inverse * slope
            value += weight * float(loss.sum())
            gradient += weight * (design.T @ by_h)
            hessian += weight * (design.T * by_hh) @ design
        return value, gradient, hessian

    layers = parts[0][1].shape[1] - 1
    start = np.append(np.full(layers, 0.05), np.log(solve_temperature(clean)))
    return bounded_newton(derivatives, start, np.append(np.zeros(layers), -np.inf))


def refit_intercept(logits: Array, labels: Array, log_temperatures: Any, level: float, loss: Loss) -> float:
    """Move the level most of the way to where the clean data alone are calibrated best."""
    rescaled = logits / asarray_like(np.exp(log_temperatures), logits)[:, None]
    return level + CLEAN_LEVEL * float(np.log(solve_temperature(TemperedLoss(rescaled, labels, loss))))


def _with_ones(excess: Any) -> Any:
    return np.column_stack([excess, np.ones(len(excess))])
