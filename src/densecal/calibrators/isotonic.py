"""Isotonic regression: a non-decreasing map from scores to frequencies, for all classes or one per class."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import isotonic_regression

from densecal.arrays import Array, asarray_like, by_row_blocks, namespace, softmax, to_numpy
from densecal.calibrators.base import Calibrator
from densecal.calibrators.citation import Citation
from densecal.calibrators.solvers.logit_rows import interpolate, round_scores, warn_of_missing_classes
from densecal.calibrators.temperature import EnsembleTemperatureScaling

TIE_BREAK = 1e-9
"""Slope added to a map, so that scores on a plateau keep their order and no row is all zero."""


class MulticlassIsotonic(Calibrator):
    r"""Fit one non-decreasing map to the probabilities of all classes (IRM).

    The map g is the isotonic regression of the one-hot labels on the probabilities, over all N C pairs. With 10^-9 p
    added it is strictly increasing, so the order of the classes, and therefore the accuracy, does not change:

    .. math:: q_c = \frac{g(p_c) + 10^{-9} p_c}{\sum_j g(p_j) + 10^{-9} p_j}

    Published code omits the denominator, so its rows do not sum to one. If g is zero for a whole row, the formula
    returns the uncalibrated probabilities. g is linear between the plateaus and constant outside the range of the
    validation probabilities.

    Attributes
    ----------
    thresholds_, values_ : ndarray of shape (n_breakpoints,)
        The breakpoints of the map, and its values there.

    Examples
    --------
    >>> logits = [[4.0, 0.0]] * 4
    >>> calibrator = MulticlassIsotonic().fit(logits, [0, 0, 0, 1])
    >>> calibrator.predict_proba(logits)[0].round(3)
    array([0.75, 0.25])
    """

    short_name: ClassVar[str] = "irm"
    full_name: ClassVar[str] = "Multi-class isotonic regression"
    accuracy_preserving: ClassVar[bool] = True
    learned: ClassVar[tuple[str, ...]] = ("thresholds_", "values_")
    citation: ClassVar[Citation] = EnsembleTemperatureScaling.citation

    def _fit(self, logits: Array, labels: Array) -> None:
        probabilities = by_row_blocks(_scores, to_numpy(logits))
        of_label = probabilities[np.arange(len(probabilities)), to_numpy(labels)]
        self.thresholds_, self.values_ = fit_isotonic(probabilities.reshape(-1), of_label)

    def _probabilities(self, logits: Array) -> Array:
        xp = namespace(logits)
        plain = softmax(xp.astype(logits, xp.float64))
        thresholds, values = asarray_like(self.thresholds_, plain), asarray_like(self.values_, plain)
        return _normalised(interpolate(round_scores(plain), thresholds, values), plain, logits.dtype)


class OneVsRestIsotonic(Calibrator):
    r"""Fit one non-decreasing map per class to its probability, one versus rest (IR).

    .. math:: q_c = \frac{g_c(p_c) + 10^{-9} p_c}{\sum_j g_j(p_j) + 10^{-9} p_j}

    The maps differ between classes, so the predicted class can change. A class that is missing from the validation set
    keeps its uncalibrated probability before normalisation, with a warning. Where every g_c is zero, the formula
    returns the uncalibrated probabilities.

    Attributes
    ----------
    thresholds_, values_ : ndarray of shape (n_breakpoints,)
        The breakpoints and values of all maps, concatenated in the order of the classes.
    offsets_ : ndarray of shape (n_classes + 1,)
        The breakpoints of class c are ``thresholds_[offsets_[c]:offsets_[c + 1]]``.

    Examples
    --------
    >>> logits = [[4.0, 0.0]] * 4
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
        return _normalised(xp.stack(columns, axis=1), plain, logits.dtype)


def fit_isotonic(scores: Any, positive_scores: Any) -> tuple[Any, Any]:
    """Return the breakpoints and values of the isotonic regression of (is positive) on the scores.

    All scores between one positive and the next are negatives. Pool-adjacent-violators always merges them with the
    preceding positive, so they are merged first. The number of remaining blocks is the number of positives and does
    not grow with the number of negatives.
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
    # A plateau of a single score has one breakpoint, any other plateau has two.
    kept = np.stack([np.full(len(ends), True), ends[:, 1] > ends[:, 0]], axis=1).reshape(-1)
    return ends.reshape(-1)[kept], np.repeat(pooled.x[pooled.blocks[:-1]], 2)[kept]


def _normalised(mapped: Array, plain: Array, dtype: Any) -> Array:
    xp = namespace(plain)
    mapped = mapped + TIE_BREAK * plain
    return xp.astype(mapped / xp.sum(mapped, axis=1, keepdims=True), dtype)


def _scores(logits: Any) -> Any:
    return round_scores(softmax(logits.astype(np.float64)))
