"""The likelihood of affine maps of logits, and a preconditioned quasi-Newton method to maximise it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import minimize

from densecal.arrays import Array, is_torch, namespace, softmax
from densecal.calibrators.solvers.logit_rows import centre_rows, for_fit

WIDE_VALUES = 1 << 22
"""Fits use float64 up to this many values, and the dtype of the logits above."""

CURVATURE_FLOOR = 1e-4


def prepare(logits: Array, labels: Array, *more: Array) -> tuple[Array, ...]:
    """Return centred logits (in float64 if there are few), labels and further arrays, in the order of `for_fit`."""
    logits, labels, *more_ordered = for_fit(logits, labels, *more)
    xp = namespace(logits)
    if logits.shape[0] * logits.shape[1] <= WIDE_VALUES:
        logits = xp.astype(logits, xp.float64)
    return centre_rows(logits), labels, *more_ordered


def residuals(scores: Array, labels: Array, sample_weight: Array | None = None) -> tuple[float, Array]:
    """Return the summed negative log-likelihood and its gradient in the scores, softmax(scores) - one-hot."""
    xp = namespace(scores)
    rows = xp.arange(scores.shape[0], **({"device": scores.device} if is_torch(scores) else {}))
    scores = scores - xp.max(scores, axis=1, keepdims=True)
    of_label = scores[rows, labels]
    weights = xp.exp(scores)
    totals = xp.sum(weights, axis=1, keepdims=True)
    losses = xp.log(totals[:, 0]) - of_label
    weights = weights / totals
    weights[rows, labels] -= 1
    if sample_weight is not None:
        losses, weights = losses * sample_weight, weights * sample_weight[:, None]
    return float(xp.sum(xp.astype(losses, xp.float64))), weights


def variances(scores: Array) -> Array:
    """Return p (1 - p) for each class, the curvature of the negative log-likelihood in the scores."""
    probabilities = softmax(scores)
    return probabilities * (1 - probabilities)


def minimise(
    objective: Callable[[Any], tuple[float, Any]], start: Any, curvature: Any, *, max_iterations: int, tolerance: float
) -> Any:
    """Minimise by L-BFGS in units in which all parameters have similar curvature, given estimates at the start.

    Without scaling L-BFGS needs several times as many iterations.
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
