"""Apply a calibrator to the outputs of every batch of a Ray data set, or a calibrated model to its inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import ray.data

from densecal.calibrators.base import Calibrator
from densecal.integrations.ray.cluster import Workers
from densecal.integrations.ray.shards import to_outputs
from densecal.integrations.ray.tasks import Columns
from densecal.outputs import Outputs

if TYPE_CHECKING:
    from densecal.torch.features.batches import BatchFn
    from densecal.torch.model import CalibratedModel

Model: TypeAlias = "Calibrator | CalibratedModel | Callable[[], CalibratedModel]"
Work: TypeAlias = Callable[[Calibrator, Outputs], Any]
"""What is done with the outputs of a batch; it returns a batch."""


class How(NamedTuple):
    """How the work is cut, and who does it."""

    batch_size: int | None
    batch_fn: BatchFn[Any] | None
    assume_logits: bool
    workers: Workers


def map_outputs(dataset: ray.data.Dataset, model: Model, work: Work, keep: Sequence[str], how: How) -> ray.data.Dataset:
    """Apply work to every batch: by tasks that share a calibrator, or by workers with a calibrated model each."""
    if not isinstance(model, Calibrator):
        return how.workers.map(dataset, _ModelWorker, (model, work, tuple(keep), how.batch_fn), how.batch_size)
    shared = ray.put(model)

    def run(batch: Columns) -> Any:
        return _with_kept(work(ray.get(shared), to_outputs(batch, assume_logits=how.assume_logits)), batch, keep)

    return dataset.map_batches(run, batch_size=how.batch_size, num_cpus=how.workers.num_cpus)


def as_model(model: Any) -> Any:
    """Return the model, or the one that a function makes."""
    return model if isinstance(model, Calibrator) or hasattr(model, "calibrator") else model()


class _ModelWorker:
    """A worker with its own calibrated model."""

    def __init__(
        self, model: Any, work: Work, keep: tuple[str, ...], batch_fn: BatchFn[Any] | None, on_gpu: bool
    ) -> None:
        self.model, self.work, self.keep, self.batch_fn = as_model(model), work, keep, batch_fn
        if on_gpu:
            self.model.to("cuda")

    def __call__(self, batch: Columns) -> Any:
        from densecal.integrations.ray.extraction import as_inputs
        from densecal.torch.measured import measured_outputs

        inputs = as_inputs(batch, self.keep if self.batch_fn is None else ())
        outputs = measured_outputs(self.model, [inputs], with_labels=True, batch_fn=self.batch_fn)
        return _with_kept(self.work(self.model.calibrator, outputs), batch, self.keep)


def _with_kept(found: Any, batch: Columns, keep: Sequence[str]) -> Any:
    return {**{name: batch[name] for name in keep}, **found} if keep else found
