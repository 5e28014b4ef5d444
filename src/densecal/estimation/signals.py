"""The values of each sample that the estimates use, the same number for any number of classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from densecal.estimation.accuracy_estimate import AccuracyEstimate
from densecal.estimation.accuracy_model import AccuracyModel

N_PREDICTORS = 2
"""Number of values per sample that the accuracy model reads."""


@dataclass(frozen=True)
class SampleSignals:
    """Arrays with one row per sample.

    Attributes
    ----------
    predictors : array of shape (n_samples, 2)
        The inputs of the accuracy model: the confidence after the shift fit, and the entropy after temperature scaling.
    confidence, plain_confidence : arrays of shape (n_samples,)
        The confidence of the calibrator and that of temperature scaling.
    is_far : array of shape (n_samples,)
        1 for inputs farther from the training data than 99 % of the clean inputs, 0 for others.
    drift : array of shape (n_samples, n_layers)
        The standardised residual of each distance.
    """

    predictors: Any
    confidence: Any
    plain_confidence: Any
    is_far: Any
    drift: Any

    def to_columns(self) -> Any:
        """Return the signals as one array of shape (n_samples, 5 + n_layers)."""
        single = np.column_stack([self.confidence, self.plain_confidence, self.is_far])
        return np.hstack([self.predictors, single, self.drift]).astype(np.float64)

    @classmethod
    def from_columns(cls, columns: Any) -> Self:
        """Restore signals from the array that `to_columns` returns."""
        confidence, plain_confidence, is_far = columns[:, N_PREDICTORS : N_PREDICTORS + 3].T
        return cls(columns[:, :N_PREDICTORS], confidence, plain_confidence, is_far, columns[:, N_PREDICTORS + 3 :])

    def estimate(self, model: AccuracyModel, layers: Sequence[str]) -> AccuracyEstimate:
        """Return the estimated accuracy of the samples, without the confusion matrix."""
        drift = self.drift.mean(axis=0, dtype=np.float64)
        extrapolation = model.extrapolation(self.drift)
        return AccuracyEstimate(
            *model.interval(self.predictors, extrapolation),
            n_samples=len(self.predictors),
            mean_confidence=float(np.mean(self.confidence, dtype=np.float64)),
            plain_confidence=float(np.mean(self.plain_confidence, dtype=np.float64)),
            far_share=float(np.mean(self.is_far)),
            drift=dict(zip(layers, map(float, drift), strict=True)),
            extrapolation=extrapolation,
        )
