"""Beta calibration: a sigmoid with separate slopes for log p and log(1 - p)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from densecal.arrays import Array, asarray_like
from densecal.calibrators.base import Calibrator
from densecal.calibrators.citation import Citation
from densecal.calibrators.solvers.masks import fill_masked
from densecal.calibrators.solvers.one_vs_rest import fit_logistic, log_odds, normalise, prepare
from densecal.calibrators.solvers.rows import by_row_blocks


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
        return by_row_blocks(self._block_probabilities, logits)

    def _block_probabilities(self, logits: Array) -> Array:
        positive, negative = log_odds(logits)
        a, b, d = (
            asarray_like(values, positive)
            for values in (self.positive_slopes_, self.negative_slopes_, self.intercepts_)
        )
        masked = fill_masked(logits, self.mask_gap_)[1]
        return normalise(a * positive - b * negative + d, masked, logits.dtype)
