"""Spline calibration: correct the top-1 score by the derivative of a smoothed cumulative error."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from scipy.interpolate import CubicSpline

from densecal.arrays import Array, asarray_like, by_row_blocks, namespace, to_numpy
from densecal.calibrators.base import Calibrator, Samples
from densecal.calibrators.citation import Citation
from densecal.calibrators.solvers.logit_rows import interpolate, round_scores


class SplineCalibration(Calibrator):
    r"""Correct the top-1 score by the derivative of the cumulative calibration error (SPL).

    With the validation samples sorted by their top-1 score s, the curve over the percentile t = i / N

    .. math:: h(t_i) = \frac{1}{N} \sum_{j \le i} (\text{correct}_j - s_j)

    is flat where the scores are calibrated. It is smoothed by a natural cubic spline fitted by least squares, and the
    derivative of the spline is the correction: :math:`\hat s = s + h'(t)`, clipped to [0, 1]. For each sample the
    derivative is averaged over its 1 / N of the percentiles, for equal scores over all of theirs. The calibrated score
    is linear between the sorted validation scores and constant beyond them.

    ``confidence`` returns that score. ``predict_proba`` divides the remainder, 1 - score, among the other classes in
    proportion to their probabilities. If another class would then exceed the predicted one, the score is raised until
    the two are equal. The accuracy does not change.

    Parameters
    ----------
    knots : int, default 6
        Number of equally spaced knots of the spline, reduced if there are fewer distinct scores.

    Attributes
    ----------
    scores_ : ndarray
        The distinct top-1 scores of the validation set, sorted.
    calibrated_ : ndarray
        The calibrated scores at ``scores_``.

    Examples
    --------
    >>> logits = [[4.0, 0.0]] * 4
    >>> calibrator = SplineCalibration().fit(logits, [0, 0, 0, 1])
    >>> calibrator.confidence(logits)[0].round(3)
    np.float64(0.75)
    """

    short_name: ClassVar[str] = "spl"
    full_name: ClassVar[str] = "Spline calibration"
    accuracy_preserving: ClassVar[bool] = True
    learned: ClassVar[tuple[str, ...]] = ("scores_", "calibrated_")
    citation: ClassVar[Citation] = Citation(
        "Calibration of Neural Networks Using Splines",
        "Gupta, Rahimi, Ajanthan, Mensink, Sminchisescu, Hartley",
        "ICLR",
        2021,
    )
    fit_loss: ClassVar[str] = "cumulative"

    def __init__(self, knots: int = 6) -> None:
        self.knots = knots

    def _confidence(self, samples: Samples) -> Array:
        # The calibrated score, before predict_proba raises it.
        scores = _top_scores(samples.logits)
        if not self.is_identity_:
            scores = self._calibrate(scores)
        return namespace(scores).astype(scores, samples.logits.dtype)

    def _fit(self, logits: Array, labels: Array) -> None:
        if self.knots < 2:
            raise ValueError(f"knots must be at least 2, got {self.knots}.")
        scores, correct = _scores_and_hits(logits, labels)
        self.scores_, offsets = spline_offsets(scores, correct, self.knots)
        self.calibrated_ = np.clip(self.scores_ + offsets, 0, 1)

    def _fit_score(self, logits: Array, labels: Array) -> tuple[float, float]:
        scores, correct = _scores_and_hits(logits, labels)
        calibrated = np.interp(scores, self.scores_, self.calibrated_)
        return _mean_squared_gap(scores, calibrated, correct), _mean_squared_gap(scores, scores, correct)

    def _probabilities(self, logits: Array) -> Array:
        xp = namespace(logits)
        shifted = xp.astype(logits - xp.max(logits, axis=1, keepdims=True), xp.float64)
        score = self._calibrate(_top_scores(logits))[:, None]
        classes = xp.cumulative_sum(xp.ones_like(shifted, dtype=xp.int64), axis=1) - 1
        is_top = classes == xp.argmax(logits, axis=1)[:, None]
        # Compute the other classes' fractions from the logits: 1 - p_1 rounds to zero where p_1 is near one.
        others = xp.where(is_top, -xp.inf, shifted)
        shares = xp.exp(others - xp.max(others, axis=1, keepdims=True))
        shares = shares / xp.sum(shares, axis=1, keepdims=True)
        second = xp.max(shares, axis=1, keepdims=True)
        score = xp.maximum(score, second / (1 + second))
        probabilities = xp.where(is_top, score, (1 - score) * shares)
        return xp.astype(probabilities, logits.dtype)

    def _calibrate(self, scores: Array) -> Array:
        return interpolate(scores, asarray_like(self.scores_, scores), asarray_like(self.calibrated_, scores))


def spline_offsets(scores: Any, correct: Any, knots: int) -> tuple[Any, Any]:
    """Return the distinct scores and the mean derivative of the smoothed cumulative error at each."""
    distinct, group, sizes = np.unique(scores, return_inverse=True, return_counts=True)
    # The order of equal scores is arbitrary, so use their mean accuracy.
    excess = np.bincount(group, weights=correct) / sizes - distinct
    percentile = np.linspace(0, 1, len(scores) + 1)
    cumulative = np.append(0, np.cumsum(np.repeat(excess, sizes))) / len(scores)
    knots = min(knots, len(distinct) + 1)
    basis = CubicSpline(np.linspace(0, 1, knots), np.eye(knots), bc_type="natural")
    coefficients = np.linalg.lstsq(basis(percentile), cumulative, rcond=None)[0]
    ends = np.append(0, np.cumsum(sizes)) / len(scores)
    return distinct, np.diff(basis(ends) @ coefficients) / np.diff(ends)


def _top_scores(logits: Array) -> Array:
    """Return the largest softmax probability of each row, in float64."""
    xp = namespace(logits)
    shifted = xp.astype(logits - xp.max(logits, axis=1, keepdims=True), xp.float64)
    return round_scores(1 / xp.sum(xp.exp(shifted), axis=1))


def _scores_and_hits(logits: Array, labels: Array) -> tuple[Any, Any]:
    correct = to_numpy(namespace(logits).argmax(logits, axis=1) == labels)
    return by_row_blocks(_top_scores, to_numpy(logits)), correct.astype(np.float64)


def _mean_squared_gap(scores: Any, calibrated: Any, correct: Any) -> float:
    """Return the mean squared cumulative error at the end of each group of equal scores."""
    distinct, group = np.unique(scores, return_inverse=True)
    gaps = np.cumsum(np.bincount(group, weights=correct - calibrated, minlength=len(distinct))) / len(scores)
    return float(np.mean(gaps**2))
