"""Platt scaling and beta calibration: logistic maps of each class's probability, one versus rest."""

from __future__ import annotations

from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit, log_expit

from densecal.arrays import Array, asarray_like, namespace, softmax, to_numpy
from densecal.calibrators.base import Calibrator
from densecal.calibrators.citation import Citation
from densecal.calibrators.solvers.logit_rows import warn_of_missing_classes
from densecal.calibrators.solvers.masks import fill_masked, find_mask_gap, hide_masked

LOWEST = -700.0
"""The smallest logarithm of a probability, that of the smallest float64."""


class PlattScaling(Calibrator):
    r"""Apply a slope and an intercept to the log-odds of each class, one versus rest (Platt's sigmoid).

    .. math:: q_c \propto \sigma\left(a_c \log \frac{p_c}{1 - p_c} + b_c\right), \quad a_c \geq 0

    The labels are smoothed as in Platt's paper: with n positives and m negatives they are (n + 1) / (n + 2) and
    1 / (m + 2). The intercept is what temperature scaling lacks: it corrects a classifier that favours a class. The
    predicted class can change.

    Attributes
    ----------
    slopes_, intercepts_ : ndarray of shape (n_classes,)
        a and b of each class.

    mask_gap_ : float
        How far below the largest of its row a logit masks its class: the probability is then zero.

    Examples
    --------
    >>> import numpy as np
    >>> logits = np.array([[4.0, 0.0]] * 400)
    >>> calibrator = PlattScaling().fit(logits, [0] * 300 + [1] * 100)
    >>> calibrator.predict_proba(logits)[0].round(2)
    array([0.75, 0.25])
    """

    short_name: ClassVar[str] = "platt"
    full_name: ClassVar[str] = "Platt scaling"
    accuracy_preserving: ClassVar[bool] = False
    weighted: ClassVar[bool] = True
    learned: ClassVar[tuple[str, ...]] = ("slopes_", "intercepts_", "mask_gap_")
    citation: ClassVar[Citation] = Citation(
        "Probabilistic Outputs for Support Vector Machines and Comparisons to Regularized Likelihood Methods",
        "Platt",
        "Advances in Large Margin Classifiers",
        1999,
    )
    fit_loss: ClassVar[str] = "nll"

    slopes_: Any
    intercepts_: Any
    mask_gap_: float

    def _fit(self, logits: Array, labels: Array, weights: Any = None) -> None:
        labels, weights, positive, negative, self.mask_gap_ = prepare(logits, labels, weights, self.n_classes_)
        parameters = []
        for label in range(self.n_classes_):
            ours = labels == label
            n, m = weights[ours].sum(), weights[~ours].sum()
            targets = np.where(ours, (n + 1) / (n + 2), 1 / (m + 2))
            terms = (positive[:, label] - negative[:, label])[:, None]
            parameters.append(fit_logistic(terms, targets, weights, penalty=0.0))
        self.slopes_, self.intercepts_ = np.array(parameters).T.copy()

    def _probabilities(self, logits: Array) -> Array:
        positive, negative = log_odds(logits)
        slopes, intercepts = asarray_like(self.slopes_, positive), asarray_like(self.intercepts_, positive)
        masked = fill_masked(logits, self.mask_gap_)[1]
        return normalise(slopes * (positive - negative) + intercepts, masked, logits.dtype)


class BetaCalibration(Calibrator):
    r"""Map the probability of each class, one versus rest, by the ratio of two beta densities.

    .. math:: q_c \propto \sigma\left(a_c \log p_c - b_c \log (1 - p_c) + d_c\right), \quad a_c, b_c \geq 0

    a = b is Platt's sigmoid, and a = b = 1, d = 0 the identity. Unlike the sigmoid, it can calibrate a classifier that
    is overconfident at one end and underconfident at the other, as forests and naive Bayes are. The predicted class
    can change.

    Parameters
    ----------
    penalty : float, default 0.1
        The weight of the squared distance of (a, b, d) from the identity, beside the sum of the log losses. It decides
        where the classes are separable and hardly matters elsewhere.

    Attributes
    ----------
    positive_slopes_, negative_slopes_, intercepts_ : ndarray of shape (n_classes,)
        a, b and d of each class.

    mask_gap_ : float
        How far below the largest of its row a logit masks its class: the probability is then zero.

    Examples
    --------
    >>> import numpy as np
    >>> logits = np.array([[4.0, 0.0]] * 400)
    >>> calibrator = BetaCalibration().fit(logits, [0] * 300 + [1] * 100)
    >>> calibrator.predict_proba(logits)[0].round(2)
    array([0.75, 0.25])
    """

    short_name: ClassVar[str] = "beta"
    full_name: ClassVar[str] = "Beta calibration"
    accuracy_preserving: ClassVar[bool] = False
    weighted: ClassVar[bool] = True
    learned: ClassVar[tuple[str, ...]] = ("positive_slopes_", "negative_slopes_", "intercepts_", "mask_gap_")
    citation: ClassVar[Citation] = Citation(
        "Beta Calibration: A Well-Founded and Easily Implemented Improvement on Logistic Calibration for Binary "
        "Classifiers",
        "Kull, Silva Filho, Flach",
        "AISTATS",
        2017,
    )
    fit_loss: ClassVar[str] = "nll"

    positive_slopes_: Any
    negative_slopes_: Any
    intercepts_: Any
    mask_gap_: float

    def __init__(self, penalty: float = 0.1) -> None:
        self.penalty = penalty

    def _fit(self, logits: Array, labels: Array, weights: Any = None) -> None:
        if not self.penalty >= 0:
            raise ValueError(f"penalty must be 0 or more, got {self.penalty}.")
        labels, weights, positive, negative, self.mask_gap_ = prepare(logits, labels, weights, self.n_classes_)
        parameters = [
            fit_logistic(
                np.stack([positive[:, label], -negative[:, label]], axis=1), labels == label, weights, self.penalty
            )
            for label in range(self.n_classes_)
        ]
        self.positive_slopes_, self.negative_slopes_, self.intercepts_ = np.array(parameters).T.copy()

    def _probabilities(self, logits: Array) -> Array:
        positive, negative = log_odds(logits)
        a, b, d = (
            asarray_like(values, positive)
            for values in (self.positive_slopes_, self.negative_slopes_, self.intercepts_)
        )
        masked = fill_masked(logits, self.mask_gap_)[1]
        return normalise(a * positive - b * negative + d, masked, logits.dtype)


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
    weights = np.ones(len(labels)) if weights is None else weights
    return Prepared(to_numpy(labels), weights, *log_odds(to_numpy(logits)), find_mask_gap(logits, labels))


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
