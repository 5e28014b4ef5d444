"""The batches of a stream, in any form that the monitored model accepts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from densecal.arrays import Array
from densecal.calibrators.base import Calibrator
from densecal.outputs import Outputs


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


def read_batch(model: Any, batch: Any, batch_fn: Callable[[Any], Any] | None = None) -> Outputs | Array:
    """Return the Outputs or logits of a batch that is passed without features and distances."""
    if isinstance(batch, Outputs) or isinstance(model, Calibrator):
        return batch
    if hasattr(model, "calibrator_"):
        found: Outputs = model._outputs(batch)
        return found
    from densecal.torch.features.batches import split_batch
    from densecal.torch.measured import measured_outputs, outputs_of

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
