"""Platt scaling and beta calibration: logistic maps of each class's probability, one versus rest."""

from __future__ import annotations

from typing import Any, ClassVar

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


class _LogisticMaps(Calibrator):
    """A logistic map per class, one versus rest, of terms of log p and log(1 - p); ``mask_gap_`` is learned last."""

    accuracy_preserving: ClassVar[bool] = False
    weighted: ClassVar[bool] = True
    fit_loss: ClassVar[str] = "nll"

    def _terms(self, positive: Array, negative: Array) -> list[Array]:
        """Return the terms that are multiplied by the slopes, from log p and log(1 - p)."""
        raise NotImplementedError

    def _fit_class(self, terms: Any, is_class: Any, weights: Any) -> Any:
        raise NotImplementedError

    def _fit(self, logits: Array, labels: Array, weights: Any = None) -> None:
        warn_of_missing_classes(labels, self.n_classes_, "get low probabilities")
        self.mask_gap_ = find_mask_gap(logits, labels)
        labels, terms = to_numpy(labels), self._terms(*log_odds(to_numpy(logits)))
        weights = np.ones(len(labels)) if weights is None else weights
        parameters = []
        for label in range(self.n_classes_):
            own_terms = np.stack([term[:, label] for term in terms], axis=1)
            parameters.append(self._fit_class(own_terms, labels == label, weights))
        for name, values in zip(self.learned[:-1], np.array(parameters).T.copy(), strict=True):
            setattr(self, name, values)

    def _probabilities(self, logits: Array) -> Array:
        terms = self._terms(*log_odds(logits))
        *slopes, intercepts = (asarray_like(getattr(self, name), terms[0]) for name in self.learned[:-1])
        scores = sum(slope * term for slope, term in zip(slopes, terms, strict=True)) + intercepts
        xp = namespace(scores)
        # The softmax of log sigmoid(s) cannot divide zero by zero.
        logs = xp.clip(scores, None, 0) - xp.log1p(xp.exp(-xp.abs(scores)))
        return xp.astype(softmax(hide_masked(logs, fill_masked(logits, self.mask_gap_)[1])), logits.dtype)


class PlattScaling(_LogisticMaps):
    r"""Apply a slope and an intercept to the log-odds of each class, one versus rest (Platt's sigmoid).

    .. math:: q_c \propto \sigma\left(a_c \log \frac{p_c}{1 - p_c} + b_c\right), \quad a_c \geq 0

    The labels are smoothed as in Platt's paper: with n positives and m negatives they are (n + 1) / (n + 2) and 1 / (m
    + 2). Unlike temperature scaling, it has an intercept, which corrects a classifier that favours a class. The
    predicted class can change.

    Attributes
    ----------
    slopes_, intercepts_ : ndarray of shape (n_classes,)
        a and b of each class.
    mask_gap_ : float
        How far below the largest of its row a logit masks its class: the probability is then zero.

    Examples
    --------
    >>> logits = [[4.0, 0.0]] * 400
    >>> calibrator = PlattScaling().fit(logits, [0] * 300 + [1] * 100)
    >>> calibrator.predict_proba(logits)[0].round(2)
    array([0.75, 0.25])
    """

    short_name: ClassVar[str] = "platt"
    full_name: ClassVar[str] = "Platt scaling"
    learned: ClassVar[tuple[str, ...]] = ("slopes_", "intercepts_", "mask_gap_")
    citation: ClassVar[Citation] = Citation(
        "Probabilistic Outputs for Support Vector Machines and Comparisons to Regularized Likelihood Methods",
        "Platt",
        "Advances in Large Margin Classifiers",
        1999,
    )

    def _terms(self, positive: Array, negative: Array) -> list[Array]:
        return [positive - negative]

    def _fit_class(self, terms: Any, is_class: Any, weights: Any) -> Any:
        n, m = weights[is_class].sum(), weights[~is_class].sum()
        return fit_logistic(terms, np.where(is_class, (n + 1) / (n + 2), 1 / (m + 2)), weights, penalty=0.0)


class BetaCalibration(_LogisticMaps):
    r"""Map the probability of each class, one versus rest, by the ratio of two beta densities.

    .. math:: q_c \propto \sigma\left(a_c \log p_c - b_c \log (1 - p_c) + d_c\right), \quad a_c, b_c \geq 0

    a = b is Platt's sigmoid. Unlike the sigmoid, it can calibrate a classifier that is overconfident at one end and
    underconfident at the other, as forests and naive Bayes are. The predicted class can change.

    Parameters
    ----------
    penalty : float, default 0.1
        The weight of the squared distance of (a, b, d) from the identity, added to the sum of the log losses. It
        determines the solution for separable classes and hardly matters otherwise.

    Attributes
    ----------
    positive_slopes_, negative_slopes_, intercepts_ : ndarray of shape (n_classes,)
        a, b and d of each class.
    mask_gap_ : float
        How far below the largest of its row a logit masks its class: the probability is then zero.

    Examples
    --------
    >>> logits = [[4.0, 0.0]] * 400
    >>> calibrator = BetaCalibration().fit(logits, [0] * 300 + [1] * 100)
    >>> calibrator.predict_proba(logits)[0].round(2)
    array([0.75, 0.25])
    """

    short_name: ClassVar[str] = "beta"
    full_name: ClassVar[str] = "Beta calibration"
    learned: ClassVar[tuple[str, ...]] = ("positive_slopes_", "negative_slopes_", "intercepts_", "mask_gap_")
    citation: ClassVar[Citation] = Citation(
        "Beta Calibration: A Well-Founded and Easily Implemented Improvement on Logistic Calibration for Binary "
        "Classifiers",
        "Kull, Silva Filho, Flach",
        "AISTATS",
        2017,
    )

    def __init__(self, penalty: float = 0.1) -> None:
        self.penalty = penalty

    def _fit(self, logits: Array, labels: Array, weights: Any = None) -> None:
        if not self.penalty >= 0:
            raise ValueError(f"penalty must be 0 or more, got {self.penalty}.")
        super()._fit(logits, labels, weights)

    def _terms(self, positive: Array, negative: Array) -> list[Array]:
        return [positive, -negative]

    def _fit_class(self, terms: Any, is_class: Any, weights: Any) -> Any:
        return fit_logistic(terms, is_class, weights, self.penalty)


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


def fit_logistic(terms: Any, targets: Any, weights: Any, penalty: float) -> Any:
    """Return the parameters of sigmoid(w · terms + b), with w >= 0, that minimise the log loss.

    ``penalty`` per squared distance from w = 1, b = 0 is added to the sum of the losses.
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
