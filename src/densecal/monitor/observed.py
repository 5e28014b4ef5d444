"""The few numbers per sample that a monitor keeps of a batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from densecal.arrays import Array, ArrayLike, as_array, to_numpy
from densecal.arrays.checks import check_numbers
from densecal.calibrators.base import Calibrator
from densecal.calibrators.dac.unlabelled import sample_signals
from densecal.outputs import Outputs


class Observed(NamedTuple):
    """The data that a monitor keeps of a batch: signals, predicted classes and, if any, labels.

    A negative label means that the label has not arrived.
    """

    columns: Array
    predicted: Array
    labels: Array | None


def observe(
    calibrator: Calibrator,
    outputs: Outputs | ArrayLike,
    features: Mapping[str, ArrayLike] | None = None,
    distances: ArrayLike | None = None,
) -> Observed:
    """Return the data that a monitor of the calibrator keeps of a batch, a few numbers per sample."""
    logits, labels = (outputs.logits, outputs.labels) if isinstance(outputs, Outputs) else (outputs, None)
    columns = sample_signals(calibrator, outputs, features, distances).to_columns()
    predicted = to_numpy(check_numbers(as_array(logits, "logits"), "logits")).argmax(axis=1)
    return Observed(columns, predicted, None if labels is None else to_numpy(labels))
