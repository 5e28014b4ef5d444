"""Other estimates of the accuracy of a classifier on unlabelled data, from its logits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from sklearn.isotonic import IsotonicRegression

import densecal
from densecal.arrays import softmax
from densecal.outputs import Outputs

Estimate = Callable[[Outputs], float]
"""Returns the estimated accuracy of a batch."""


def estimates(val: Outputs, dac: densecal.DAC) -> dict[str, Estimate]:
    """Return the estimates to compare with: the mean confidence of calibrators that are trusted, and peers."""
    scaling = densecal.TemperatureScaling(loss="nll").fit(val)
    return {
        "ts": mean_confidence(scaling),
        "shift fit": mean_confidence(dac),
        "cbpe": cbpe(val),
        "atc": atc(val, scaling),
        "doc": doc(val, scaling),
    }


def compare(dac: densecal.DAC, batch: Outputs, peers: Mapping[str, Estimate]) -> dict[str, float]:
    """Return the accuracy of a batch, densecal's estimate with its interval, and those of the peers."""
    found = dac.estimate_accuracy(batch)
    row = {"accuracy": accuracy_of(batch), "densecal": found.accuracy, "low": found.low, "high": found.high}
    return row | {peer: estimate(batch) for peer, estimate in peers.items()}


def mean_confidence(calibrator: densecal.Calibrator) -> Estimate:
    """Return the estimate of a calibrator that is trusted: its mean confidence."""
    return lambda batch: float(np.mean(calibrator.confidence(batch)))


def atc(val: Outputs, scaling: densecal.TemperatureScaling) -> Estimate:
    """Return average thresholded confidence (Garg et al. 2022)."""
    threshold = np.quantile(scaling.confidence(val.logits), 1 - accuracy_of(val))
    return lambda batch: float(np.mean(scaling.confidence(batch.logits) > threshold))


def doc(val: Outputs, scaling: densecal.TemperatureScaling) -> Estimate:
    """Return the difference of confidences (Guillory et al. 2021): the accuracy falls as the mean confidence does."""
    above = accuracy_of(val) - float(np.mean(scaling.confidence(val.logits)))
    return lambda batch: above + float(np.mean(scaling.confidence(batch.logits)))


def cbpe(val: Outputs) -> Estimate:
    """Return NannyML's confidence-based performance estimate.

    As in NannyML 0.13, an isotonic regression per class calibrates the probabilities on the reference data, the rows
    are normalised, and the estimate is the mean probability of the predicted class.
    """
    reference, labels = _probabilities(val), np.asarray(val.labels)
    maps = [
        IsotonicRegression(out_of_bounds="clip").fit(reference[:, c], labels == c) for c in range(reference.shape[1])
    ]

    def estimate(batch: Outputs) -> float:
        probabilities = _probabilities(batch)
        calibrated = np.column_stack([one.predict(column) for one, column in zip(maps, probabilities.T, strict=True)])
        total = calibrated.sum(axis=1)
        calibrated /= np.where(total > 0, total, 1.0)[:, None]
        return float(calibrated[np.arange(len(batch)), probabilities.argmax(axis=1)].mean())

    return estimate


def accuracy_of(outputs: Outputs) -> float:
    return float(np.mean(correct(outputs)))


def correct(outputs: Outputs) -> Any:
    return np.argmax(outputs.logits, axis=1) == outputs.labels


def _probabilities(outputs: Outputs) -> Any:
    return softmax(np.asarray(outputs.logits, dtype=np.float64))
