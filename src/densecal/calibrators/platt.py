"""Platt scaling: a slope and an intercept for the log-odds of each class."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from densecal.arrays import Array, asarray_like
from densecal.calibrators.base import Calibrator
from densecal.calibrators.citation import Citation
from densecal.calibrators.solvers.masks import fill_masked
from densecal.calibrators.solvers.one_vs_rest import fit_logistic, log_odds, normalise, prepare
from densecal.calibrators.solvers.rows import by_row_blocks


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
        return by_row_blocks(self._block_probabilities, logits)

    def _block_probabilities(self, logits: Array) -> Array:
        positive, negative = log_odds(logits)
        slopes, intercepts = asarray_like(self.slopes_, positive), asarray_like(self.intercepts_, positive)
        masked = fill_masked(logits, self.mask_gap_)[1]
        return normalise(slopes * (positive - negative) + intercepts, masked, logits.dtype)
