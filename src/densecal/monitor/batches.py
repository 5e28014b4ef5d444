"""What a monitor is given: a model, batches in any form that the model accepts, and ids of samples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from densecal.arrays import Array, ArrayOrTensor
from densecal.calibrators.base import Calibrator
from densecal.outputs import Outputs

SampleIds: TypeAlias = Sequence[str | int] | ArrayOrTensor


def calibrator_of(model: Any) -> Calibrator:
    """Return the calibrator of a model."""
    if isinstance(model, Calibrator):
        return model
    calibrator = getattr(model, "calibrator_", None) or getattr(model, "calibrator", None)
    if not isinstance(calibrator, Calibrator):
        raise TypeError(
            f"model must be a fitted Calibrator, CalibratedModel or CalibratedClassifier, got {type(model).__name__}."
        )
    return calibrator


def read_batch(model: Any, batch: Any, *, is_logits: bool, batch_fn: Callable[[Any], Any] | None) -> Outputs | Array:
    """Return the Outputs or logits of a batch in any form that the model accepts."""
    if isinstance(batch, Outputs) or is_logits or isinstance(model, Calibrator):
        return batch
    if hasattr(model, "calibrator_"):
        return model._outputs(batch)
    from densecal.torch.features.batches import split_batch
    from densecal.torch.measured import measured_outputs, outputs_of

    if hasattr(batch, "logits") and hasattr(batch, "temperature"):
        return outputs_of(model, [batch]) if len(batch.logits) else batch.logits
    inputs = split_batch(batch, model.classifier, batch_fn)
    return measured_outputs(model, [inputs], with_labels=True) if inputs.n_samples else inputs.tensors[0]


def id_texts(ids: SampleIds) -> list[str]:
    """Return ids of samples as text: those of an array or tensor are its values."""
    values: Any = ids.tolist() if hasattr(ids, "tolist") else ids
    texts = []
    for value in values:
        one = value.item() if hasattr(value, "item") else value
        # The text of a float or of None matches no id that was an integer.
        if isinstance(one, bool) or not isinstance(one, (int, str)):
            raise TypeError(f"ids must be integers or strings, got {one!r} of type {type(one).__name__}.")
        texts.append(str(one))
    return texts
