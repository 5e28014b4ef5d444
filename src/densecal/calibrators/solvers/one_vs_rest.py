"""Logistic maps of each class's probability, one versus rest, that cannot decrease."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log_expit

from densecal.arrays import Array, namespace, softmax, to_numpy
from densecal.calibrators.solvers.masks import hide_masked, mask_gap
from densecal.calibrators.solvers.rows import warn_of_missing_classes
from densecal.calibrators.solvers.tempering import TemperedLoss, solve_temperature

LOWEST = -700.0
"""The smallest logarithm of a probability, that of the smallest float64."""


class Prepared(NamedTuple):
    """What the fit of every class needs: labels, weights, log p and log(1 - p), and the gap that masks a class."""

    labels: Any
    weights: Any
    positive: Any
    negative: Any
    mask_gap: float


def prepare(logits: Array, labels: Array, weights: Any, n_classes: int) -> Prepared:
    """Return validation data for the fits of the classes; warn of classes without samples."""
    warn_of_missing_classes(labels, n_classes, "get low probabilities")
    gap = mask_gap(solve_temperature(TemperedLoss(logits, labels, "nll"), warn=False))
    weights = np.ones(len(labels)) if weights is None else weights
    return Prepared(to_numpy(labels), weights, *log_odds(to_numpy(logits)), gap)


def log_odds(logits: Array) -> tuple[Array, Array]:
    """Return log p and log(1 - p) of the softmax in float64, exact also where p is nearly 1."""
    xp = namespace(logits)
    weights = xp.astype(logits, xp.float64)
    weights = xp.exp(weights - xp.max(weights, axis=1, keepdims=True))
    total = xp.sum(weights, axis=1, keepdims=True)
    is_top = weights == 1
    zeros, ones = xp.zeros_like(weights), xp.ones_like(weights)
    others = xp.sum(xp.where(is_top, zeros, weights), axis=1, keepdims=True)
    ties = xp.sum(xp.where(is_top, ones, zeros), axis=1, keepdims=True) - 1
    # total - weights would cancel for the top class.
    rest = xp.where(is_top, others + ties, total - weights)
    smallest = float(np.exp(LOWEST))
    log_total = xp.log(total)
    return xp.log(xp.clip(weights, smallest, None)) - log_total, xp.log(xp.clip(rest, smallest, None)) - log_total


def normalise(scores: Array, masked: Array, dtype: Any) -> Array:
    """Return sigmoid(s) of each class divided by its sum over the classes, and zero for masked classes."""
    xp = namespace(scores)
    zeros = xp.zeros_like(scores)
    # log sigmoid(s); the softmax of the logarithms cannot divide zero by zero.
    logs = xp.where(scores < 0, scores, zeros) - xp.log1p(xp.exp(-xp.abs(scores)))
    return xp.astype(softmax(hide_masked(logs, masked)), dtype)


def fit_logistic(terms: Any, targets: Any, weights: Any, penalty: float) -> Any:
    """Return the parameters of sigmoid(w · terms + b), with w >= 0, that minimise the log loss.

    ``penalty`` is that per squared distance from w = 1, b = 0, beside the sum of the losses. It gives separable
    classes a solution.
    """
    design = np.column_stack([terms, np.ones(len(terms))])
    identity = np.append(np.ones(terms.shape[1]), 0.0)
    # Terms can reach -700; in units of their spread all parameters have similar curvature.
    unit = 1 / np.maximum(np.sqrt(np.mean(design**2, axis=0)), 1e-3)

    def objective(position: Any) -> tuple[float, Any]:
        parameters = identity + unit * position
        scores = design @ parameters
        losses = -(targets * log_expit(scores) + (1 - targets) * log_expit(-scores))
        away = parameters - identity
        gradient = design.T @ (weights * (expit(scores) - targets)) + 2 * penalty * away
        return float(weights @ losses + penalty * away @ away), unit * gradient

    bounds = [(-1 / scale, None) for scale in unit[:-1]] + [(None, None)]
    options = {"maxiter": 500, "ftol": 1e-12, "gtol": 1e-8}
    result = minimize(objective, np.zeros(len(unit)), jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    return identity + unit * result.x
