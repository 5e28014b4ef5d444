"""The inputs of a monitor: a model, batches in any form that the model accepts, and ids of samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime
from typing import Any, TypeAlias

import numpy as np

from densecal.arrays import ArrayOrTensor
from densecal.calibrators.base import Calibrator
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
        return model._outputs(batch) if _count_rows(batch) else np.zeros((0, 2))
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


def _count_rows(inputs: Any) -> int:
    """Return the number of rows of a classifier's inputs: an array, a sparse matrix, a table or a list."""
    shape = getattr(inputs, "shape", None)
    return int(shape[0]) if shape else len(inputs)
