"""The inputs of a monitor: a model, batches in any form that it accepts and what is kept of them, and ids."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from sklearn.utils.validation import _num_samples

from densecal.arrays import Array, ArrayLike, ArrayOrTensor, as_array, to_numpy
from densecal.arrays.checks import check_numbers
from densecal.calibrators.base import Calibrator
from densecal.calibrators.dac.unlabelled_batch import sample_signals
from densecal.outputs import Outputs

SampleIds: TypeAlias = Sequence[str | int] | ArrayOrTensor


def calibrator_of(model: Any) -> Calibrator:
    """Return the calibrator of a model."""
    if isinstance(model, Calibrator):
        return model
    # One of several folds cannot estimate an accuracy either, and says why.
    calibrator = next(iter(getattr(model, "calibrators_", ())), None) or getattr(model, "calibrator", None)
    if not isinstance(calibrator, Calibrator):
        raise TypeError(
            f"model must be a fitted Calibrator, CalibratedModel or CalibratedClassifier, got {type(model).__name__}."
        )
    return calibrator


def read_batch(model: Any, batch: Any, batch_fn: Callable[[Any], Any] | None = None) -> Any:
    """Return the Outputs or logits of a batch that is passed without features and distances."""
    if isinstance(batch, Outputs) or isinstance(model, Calibrator):
        return batch
    if hasattr(model, "calibrator_"):
        return model._outputs(batch) if _num_samples(batch) else np.zeros((0, 2))
    from densecal.torch.batches import split_batch
    from densecal.torch.measured_outputs import measured_outputs, outputs_of

    if hasattr(batch, "logits") and hasattr(batch, "temperature"):
        return outputs_of(model, [batch]) if len(batch.logits) else batch.logits
    if isinstance(batch, np.ndarray) and batch_fn is None:
        raise TypeError(
            "Without features= or distances=, a batch of a CalibratedModel holds its inputs, but got an array of shape "
            f"{batch.shape}. Pass inputs as a tensor, torch.from_numpy(array). Pass logits with their features= or "
            "distances=, or pass what model.details returned."
        )
    inputs = split_batch(batch, model.classifier, batch_fn)
    return measured_outputs(model, [inputs], with_labels=True) if inputs.n_samples else inputs.tensors[0]


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


def id_texts(ids: SampleIds) -> list[str]:
    """Return ids of samples, in a sequence, an array or a tensor, as text."""
    values: Any = ids.tolist() if hasattr(ids, "tolist") else ids
    texts = []
    for value in values:
        one = value.item() if hasattr(value, "item") else value
        # As text, a float or None would never equal an integer id.
        if isinstance(one, bool) or not isinstance(one, (int, str)):
            raise TypeError(f"ids must be integers or strings, got {one!r} of type {type(one).__name__}.")
        texts.append(str(one))
    return texts


def time_text(at: object) -> str:
    """Return the time or name of a batch as text."""
    if isinstance(at, datetime):
        return at.isoformat(timespec="seconds")
    if isinstance(at, (str, date)):
        return str(at)
    raise TypeError(f"at must be a str, a date or a datetime, got {at!r} of type {type(at).__name__}.")
