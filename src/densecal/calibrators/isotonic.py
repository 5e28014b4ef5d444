"""Isotonic regression: a non-decreasing step map from scores to frequencies, for all classes at once or for each."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import isotonic_regression

from densecal.arrays import Array, asarray_like, namespace, softmax, to_numpy
from densecal.calibrators.base import Calibrator
from densecal.calibrators.citation import Citation
from densecal.calibrators.solvers.interpolation import interpolate, round_scores
from densecal.calibrators.solvers.rows import by_row_blocks, warn_of_missing_classes

TIE_BREAK = 1e-9
"""Slope added to a map, so that scores on one plateau keep their order and no row is all zero."""


class MulticlassIsotonic(Calibrator):
    r"""Learn one non-decreasing map for the probabilities of all classes together (IRM).

    Every sample gives C pairs of a probability and a 0 or 1, and isotonic regression through all N C of them gives
    the map g. With 10^-9 p added it is strictly increasing, so the order of the classes, and so the accuracy, stays:

    .. math:: q_c = \frac{g(p_c) + 10^{-9} p_c}{\sum_j g(p_j) + 10^{-9} p_j}

    Published code leaves out the denominator; rows then do not sum to one. Where g is zero for the whole row the
    formula gives the uncalibrated probabilities back. Between the plateaus g is linear; outside the validation
    set's probabilities it is constant.

    Attributes
    ----------
    thresholds_ : ndarray of shape (breakpoints,)
        Probabilities at which the map bends.
    values_ : ndarray of shape (breakpoints,)
        The map's values there.

    Examples
    --------
    >>> import numpy as np
    >>> logits = np.array([[4.0, 0.0]] * 4)
    >>> calibrator = MulticlassIsotonic().fit(logits, [0, 0, 0, 1])
    >>> calibrator.predict_proba(logits)[0].round(3)
    array([0.75, 0.25])
    """

    short_name: ClassVar[str] = "irm"
    full_name: ClassVar[str] = "Multi-class isotonic regression"
    accuracy_preserving: ClassVar[bool] = True
    learned: ClassVar[tuple[str, ...]] = ("thresholds_", "values_")
    citation: ClassVar[Citation] = Citation(
        "Mix-n-Match: Ensemble and Compositional Methods for Uncertainty Calibration in Deep Learning",
        "Zhang, Kailkhura, Han",
        "ICML",
        2020,
    )

    thresholds_: Any
    values_: Any

    def _fit(self, logits: Array, labels: Array) -> None:
        probabilities = by_row_blocks(_scores, to_numpy(logits))
        of_label = probabilities[np.arange(len(probabilities)), to_numpy(labels)]
        self.thresholds_, self.values_ = fit_isotonic(probabilities.reshape(-1), of_label)

    def _probabilities(self, logits: Array) -> Array:
        return by_row_blocks(self._block_probabilities, logits)

    def _block_probabilities(self, logits: Array) -> Array:
        xp = namespace(logits)
        plain = softmax(xp.astype(logits, xp.float64))
        thresholds, values = asarray_like(self.thresholds_, plain), asarray_like(self.values_, plain)
        mapped = interpolate(round_scores(plain), thresholds, values) + TIE_BREAK * plain
        mapped = mapped / xp.sum(mapped, axis=1, keepdims=True)
        return xp.astype(mapped, logits.dtype)


class OneVsRestIsotonic(Calibrator):
    r"""Learn a non-decreasing map for the probability of each class against all others (IR).

    .. math:: q_c = \frac{g_c(p_c) + 10^{-9} p_c}{\sum_j g_j(p_j) + 10^{-9} p_j}

    The maps differ from class to class, so the predicted class can change. A class that never occurs in the
    validation set says nothing about its map: it keeps its uncalibrated probability, with a warning. Where
    every g_c is zero the formula gives the uncalibrated probabilities back.

    Attributes
    ----------
    thresholds_, values_ : ndarray of shape (breakpoints,)
        Probabilities at which the maps bend and the values there, one class after the other.
    offsets_ : ndarray of shape (classes + 1,)
        Class c's breakpoints are those from ``offsets_[c]`` up to ``offsets_[c + 1]``.

    Examples
    --------
    >>> import numpy as np
    >>> logits = np.array([[4.0, 0.0]] * 4)
    >>> calibrator = OneVsRestIsotonic().fit(logits, [0, 0, 0, 1])
    >>> calibrator.predict_proba(logits)[0].round(3)
    array([0.75, 0.25])
    """

    short_name: ClassVar[str] = "ir"
    full_name: ClassVar[str] = "One-vs-rest isotonic regression"
    accuracy_preserving: ClassVar[bool] = False
    learned: ClassVar[tuple[str, ...]] = ("thresholds_", "values_", "offsets_")
    citation: ClassVar[Citation] = Citation(
        "Transforming Classifier Scores into Accurate Multiclass Probability Estimates",
        "Zadrozny, Elkan",
        "KDD",
        2002,
    )

    thresholds_: Any
    values_: Any
    offsets_: Any

    def _fit(self, logits: Array, labels: Array) -> None:
        probabilities, labels = by_row_blocks(_scores, to_numpy(logits)), to_numpy(labels)
        warn_of_missing_classes(labels, self.n_classes_, "keep their uncalibrated probabilities")
        identity = (np.array([0.0, 1.0]), np.array([0.0, 1.0]))
        maps = []
        for label in range(self.n_classes_):
            column, positive = probabilities[:, label], labels == label
            maps.append(fit_isotonic(column, column[positive]) if positive.any() else identity)
        self.thresholds_ = np.concatenate([thresholds for thresholds, _ in maps])
        self.values_ = np.concatenate([values for _, values in maps])
        self.offsets_ = np.cumsum([0] + [len(thresholds) for thresholds, _ in maps])

    def _probabilities(self, logits: Array) -> Array:
        xp = namespace(logits)
        plain = softmax(xp.astype(logits, xp.float64))
        thresholds, values = asarray_like(self.thresholds_, plain), asarray_like(self.values_, plain)
        ends = [int(offset) for offset in self.offsets_]
        columns = [
            interpolate(round_scores(plain[:, label]), thresholds[start:end], values[start:end])
            for label, (start, end) in enumerate(pairwise(ends))
        ]
        mapped = xp.stack(columns, axis=1) + TIE_BREAK * plain
        return xp.astype(mapped / xp.sum(mapped, axis=1, keepdims=True), logits.dtype)


def fit_isotonic(scores: Any, positive_scores: Any) -> tuple[Any, Any]:
    """Return the breakpoints and values of the isotonic regression of (is positive) on the scores.

    All scores between one positive and the next are negatives. They follow a higher value, so pooling them into the
    block that the positive opens is always the first step of pool-adjacent-violators. One block for each positive
    is left, a number that does not grow with the negatives.
    """
    scores = np.sort(scores)
    openers, positives = np.unique(positive_scores, return_counts=True)
    starts = np.searchsorted(scores, openers)
    if starts[0] > 0:
        starts, positives = np.append(0, starts), np.append(0, positives)
    sizes = np.diff(np.append(starts, len(scores)))
    pooled = isotonic_regression(positives / sizes, weights=sizes)
    first, last = starts[pooled.blocks[:-1]], np.append(starts, len(scores))[pooled.blocks[1:]] - 1
    ends = np.stack([scores[first], scores[last]], axis=1)
    # A plateau of a single score has one breakpoint, any other its two ends.
    kept = np.stack([np.full(len(ends), True), ends[:, 1] > ends[:, 0]], axis=1).reshape(-1)
    return ends.reshape(-1)[kept], np.repeat(pooled.x[pooled.blocks[:-1]], 2)[kept]


def _scores(logits: Any) -> Any:
    return round_scores(softmax(logits.astype(np.float64)))
