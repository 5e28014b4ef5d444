"""AccuracyEstimate: how accurate a classifier is on an unlabelled batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from densecal.display import counted

EXTRAPOLATED = (
    "an extrapolation: the inputs are farther from the training data than all shifted data of the fit, or nearer"
)
Numbers: TypeAlias = NDArray[np.float64]
SAMPLES_PER_CLASS = 20
"""Estimates per class need at least this many samples per class, on average."""


@dataclass(frozen=True, eq=False)
class AccuracyEstimate:
    """The estimated accuracy of a classifier on an unlabelled batch, as returned by ``estimate_accuracy``.

    Attributes
    ----------
    accuracy, low, high : float
        The estimated accuracy on these samples, and its 95 % interval. The interval allows for chance and for the error
        of the estimate on unknown shifts, which is larger below the estimate than above. It is wider for small batches
        and for batches far from the clean data. The estimate depends on the distances, so it is too low for a
        classifier that is robust to a shift.
    n_samples : int
        Size of the batch.
    mean_confidence, plain_confidence : float
        Mean confidence of the calibrator, which treats each sample on its own, and of temperature scaling, which falls
        much less than the accuracy under shift.
    far_share : float
        Fraction of the inputs that are farther from the training data than 99 % of the clean inputs.
    drift : mapping of str to float
        For each layer, how far the distances lie above those of clean inputs with the same confidence: the mean, in
        standard deviations of clean inputs. Zero without a shift.
    confusion : array of shape (n_classes, n_classes), or None
        Expected number of samples per true (row) and predicted (column) class. None if the batch has fewer than 20
        samples per class.
    extrapolation : float
        The drift relative to the largest drift of a domain of the fit, in the layer where this ratio is largest. Above
        1, nothing in the fit supports the estimate and its interval.

    Examples
    --------
    >>> estimate = AccuracyEstimate(0.8, 0.7, 0.9, 50, 0.85, 0.93, 0.1, {"pool": 1.2}, np.array([[30.0, 8], [2, 10]]))
    >>> print(estimate)
    accuracy 80.0 % (70.0 to 90.0 %, 50 samples); temperature scaling claims 93.0 %
    >>> estimate.precision.round(2), round(estimate.macro_f1, 2)
    (array([0.94, 0.56]), 0.76)
    """

    accuracy: float
    low: float
    high: float
    n_samples: int
    mean_confidence: float
    plain_confidence: float
    far_share: float
    drift: Mapping[str, float]
    confusion: Numbers | None = None
    extrapolation: float = 0.0

    @property
    def is_extrapolated(self) -> bool:
        """Whether the inputs are farther from the training data than all shifted data of the fit, or nearer."""
        return self.extrapolation > 1

    @property
    def precision(self) -> Numbers:
        """The fraction of the predictions of each class that are correct; NaN for classes that are never predicted."""
        return self._rate(axis=0)

    @property
    def recall(self) -> Numbers:
        """The accuracy on each true class."""
        return self._rate(axis=1)

    @property
    def f1(self) -> Numbers:
        """The harmonic mean of precision and recall of each class; 0 for classes that are never predicted."""
        counts = self._counts()
        found: Numbers = 2 * np.diag(counts) / np.maximum(counts.sum(axis=0) + counts.sum(axis=1), 1e-12)
        return found

    @property
    def macro_f1(self) -> float:
        """The mean of the F1 scores over the classes."""
        return float(np.mean(self.f1))

    def to_dict(self) -> dict[str, object]:
        """Return the values for JSON; values per class are present if the batch is large enough."""
        names = ("accuracy", "low", "high", "n_samples", "mean_confidence", "plain_confidence", "far_share")
        values: dict[str, object] = {name: getattr(self, name) for name in (*names, "extrapolation")}
        values["drift"] = dict(self.drift)
        if self.confusion is not None:
            values |= {name: getattr(self, name).tolist() for name in ("confusion", "recall", "f1")}
            values["precision"] = [None if np.isnan(value) else float(value) for value in self.precision]
            values["macro_f1"] = self.macro_f1
        return values

    def __str__(self) -> str:
        samples = counted(self.n_samples, "sample")
        return (
            f"accuracy {self.accuracy:.1%} ({100 * self.low:.1f} to {self.high:.1%}, {samples}); "
            f"temperature scaling claims {self.plain_confidence:.1%}"
            + (f"; {EXTRAPOLATED}" if self.is_extrapolated else "")
        ).replace("%", " %")

    def _rate(self, axis: int) -> Numbers:
        counts = self._counts()
        total = counts.sum(axis=axis)
        return np.where(total > 0, np.diag(counts) / np.where(total > 0, total, 1.0), np.nan)

    def _counts(self) -> Numbers:
        if self.confusion is None:
            raise ValueError(
                f"Estimates per class need at least {SAMPLES_PER_CLASS} samples per class; this batch has "
                f"{counted(self.n_samples, 'sample')}. Windows of a Monitor never have them. Call estimate_accuracy on "
                "a larger batch."
            )
        return self.confusion


def expected_confusion(probabilities: Numbers, predicted: NDArray[np.int64]) -> Numbers:
    """Return the expected number of samples per true (row) and predicted (column) class."""
    n_samples, n_classes = probabilities.shape
    of_prediction = csr_array((np.ones(n_samples), predicted, np.arange(n_samples + 1)), shape=(n_samples, n_classes))
    counts: Numbers = probabilities.T.astype(np.float64) @ of_prediction
    return counts
