"""What the methods predict on a condition."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from densecal.arrays import Array, softmax, to_numpy
from densecal.calibrators.base import Calibrator
from densecal.calibrators.names import ORACLE
from densecal.calibrators.temperature import TemperatureScaling
from densecal.outputs import Distances, Outputs


class Predictions(NamedTuple):
    """One method's top-1 confidence on one condition, and whether each prediction is correct (None without labels).

    Examples
    --------
    >>> Predictions(np.array([0.9, 0.6]), np.array([True, False])).confidence
    array([0.9, 0.6])
    """

    confidence: NDArray[np.float64]
    correct: NDArray[np.bool_] | None


def has_own_confidence(calibrator: Calibrator) -> bool:
    """Return whether the confidence is not the largest of the probabilities, as in spline calibration."""
    return type(calibrator.stages[-1])._confidence is not Calibrator._confidence


def predict(
    methods: Mapping[str, Calibrator | None], outputs: Outputs
) -> Iterator[tuple[str, Array, Array | None, Distances | None]]:
    """Yield the name, probabilities, top-1 confidence and measured distances of each method, as NumPy arrays.

    The confidence is None if it is the largest probability.
    """
    measured: dict[object, Outputs] = {}
    for name, calibrator in methods.items():
        if calibrator is not None:
            stage, known = calibrator.density_stage, outputs
            if stage is not None:
                # Calibrators with equal banks and the same k share one search.
                key = stage.measurement
                known = measured[key] = measured.get(key) or calibrator.measure(outputs)
            probabilities = to_numpy(calibrator.predict_proba(known))
            own = to_numpy(calibrator.confidence(known)) if has_own_confidence(calibrator) else None
            distances = None if known is outputs else known.distances
            yield name, probabilities, own, distances
        else:
            logits = outputs.checked_logits()
            if name == ORACLE:
                logits = logits / TemperatureScaling(loss="brier").fit(logits, outputs.labels).temperature_
            probabilities = to_numpy(softmax(logits))
            yield name, probabilities, None, None
        del probabilities  # which are as large as the logits: never keep those of two methods
