"""The likelihood of logits under an affine map, and the preconditioned quasi-Newton method that maximises it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import minimize

from densecal.arrays import Array, is_torch, namespace, softmax
from densecal.calibrators.solvers.rows import centre_rows, for_fit

WIDE_VALUES = 1 << 22
"""Up to this many values a fit computes in float64, beyond it in the logits' own type."""

CURVATURE_FLOOR = 1e-4


def prepare(logits: Array, labels: Array) -> tuple[Array, Array]:
    """Return centred logits and labels in the fit's order, in float64 where that is cheap."""
    logits, labels = for_fit(logits, labels)
    xp = namespace(logits)
    if logits.shape[0] * logits.shape[1] <= WIDE_VALUES:
        logits = xp.astype(logits, xp.float64)
    return centre_rows(logits), labels


def residuals(scores: Array, labels: Array) -> tuple[float, Array]:
    """Return the summed negative log-likelihood and its gradient by the scores, softmax(scores) - one-hot."""
    xp = namespace(scores)
    rows = xp.arange(scores.shape[0], **({"device": scores.device} if is_torch(scores) else {}))
    scores = scores - xp.max(scores, axis=1, keepdims=True)
    of_label = scores[rows, labels]
    weights = xp.exp(scores)
    totals = xp.sum(weights, axis=1, keepdims=True)
    loss = float(xp.sum(xp.astype(xp.log(totals[:, 0]) - of_label, xp.float64)))
    weights = weights / totals
    weights[rows, labels] -= 1
    return loss, weights


def variances(scores: Array) -> Array:
    """Return p (1 - p) for each class, the likelihood's curvature by the scores."""
    probabilities = softmax(scores)
    return probabilities * (1 - probabilities)


def minimise(
    objective: Callable[[Any], tuple[float, Any]], start: Any, curvature: Any, *, max_iterations: int, tolerance: float
) -> Any:
    """Minimise by L-BFGS in units in which every parameter has about the same curvature.

    The objective gives the value and the gradient. Biases, weights of rare classes and penalised weights differ in
    curvature (roughly given, at the start) by orders of magnitude; in their own units the method needs several times
    the iterations.
    """
    unit = 1 / np.sqrt(np.maximum(curvature, CURVATURE_FLOOR * curvature.max() + np.finfo(np.float64).tiny))

    def scaled(position: Any) -> tuple[float, Any]:
        value, gradient = objective(start + unit * position)
        return value, unit * gradient

    result = minimize(
        scaled,
        np.zeros_like(start),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": max_iterations, "ftol": tolerance, "gtol": 1e-9, "maxcor": 10},
    )
    return start + unit * result.x
