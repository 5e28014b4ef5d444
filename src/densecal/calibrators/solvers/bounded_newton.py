"""Newton's method for few parameters with lower bounds, where an evaluation costs a pass over the data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import lsq_linear

CURVATURE_FLOOR = 1e-9
"""Smallest eigenvalue of the model relative to the largest, so that steps in flat directions are finite."""


@dataclass(frozen=True)
class Descent:
    """The result of a minimisation."""

    point: Any
    value: float
    iterations: int
    converged: bool


def bounded_newton(
    derivatives: Callable[[Any], tuple[float, Any, Any]],
    start: Any,
    lowest: Any,
    *,
    tolerance: float = 1e-10,
    max_iterations: int = 60,
) -> Descent:
    """Minimise a smooth function over ``point >= lowest``. The value never exceeds that at the start.

    ``derivatives`` returns the value, the gradient and the Hessian at a point. Each step minimises the quadratic model
    within the bounds exactly (a small bounded least-squares problem) and is halved until the function decreases. The
    method stops when the model predicts a relative decrease below ``tolerance``. Negative curvatures of the model are
    replaced by their absolute values.
    """
    point = np.maximum(np.asarray(start, dtype=np.float64), lowest)
    value, gradient, hessian = derivatives(point)
    for iteration in range(1, max_iterations + 1):
        step, promised = _bounded_step(gradient, hessian, lowest - point)
        if promised <= tolerance * max(abs(value), 1e-12):
            return Descent(point, value, iteration, converged=True)
        for _ in range(12):
            trial = np.maximum(point + step, lowest)
            new_value, new_gradient, new_hessian = derivatives(trial)
            if new_value < value:
                break
            step = step / 2
        else:
            return Descent(point, value, iteration, converged=promised <= 1e-6 * abs(value))
        point, value, gradient, hessian = trial, new_value, new_gradient, new_hessian
    return Descent(point, value, max_iterations, converged=False)


def _bounded_step(gradient: Any, hessian: Any, lowest_step: Any) -> tuple[Any, float]:
    """Minimise g'd + d'Hd/2 over d >= lowest_step; return d and the predicted decrease."""
    eigenvalues, vectors = np.linalg.eigh(hessian)
    eigenvalues = np.maximum(np.abs(eigenvalues), CURVATURE_FLOOR * max(np.abs(eigenvalues).max(), 1e-300))
    root = np.sqrt(eigenvalues)
    # With H = R'R the model is |R d + R^-T g|^2 / 2 up to a constant.
    matrix = root[:, None] * vectors.T
    target = -(vectors.T @ gradient) / root
    step = lsq_linear(matrix, target, bounds=(np.minimum(lowest_step, 0.0), np.inf), method="bvls").x
    return step, float(-(gradient @ step) - 0.5 * np.sum((matrix @ step) ** 2))
