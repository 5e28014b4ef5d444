"""The outputs of a calibrated model on loaders, with their distances from the training data."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from densecal.display import track
from densecal.errors import warn_user
from densecal.evaluation import Condition
from densecal.evaluation.severity_names import severities_from_names
from densecal.outputs import Distances, Outputs
from densecal.torch.batches import BatchFn, device_of, split_batches
from densecal.torch.extraction import check_labelled, join_labels
from densecal.torch.head.head import Details
from densecal.torch.loaders import check_loader

if TYPE_CHECKING:
    from densecal.torch.model import CalibratedModel

TEST_SET = "test"
"""The name of a test set that is passed without one."""
NEEDS_LABELS = "an evaluation compares the confidences with them (without labels, call estimate_accuracy)"


def measured_outputs(
    model: CalibratedModel,
    loader: Iterable[Any],
    *,
    with_labels: bool = False,
    batch_fn: BatchFn[Any] | None = None,
    name: str = "loader",
    progress: bool = False,
) -> Outputs:
    """Run a calibrated model over a loader; return logits and distances and, if asked for, labels."""
    check_loader(loader)
    model.record.warn_if_changed(model.classifier)
    device, found, labels = device_of(model.classifier), list[Details](), list[Tensor | None]()
    with torch.inference_mode():
        read = track(loader, f"reading {name}") if progress else loader
        for batch in split_batches(read, model.classifier, batch_fn, with_labels=with_labels):
            inputs = batch.to(device)
            found.append(model.details(*inputs.args, **inputs.kwargs))
            labels.append(batch.labels)
    if not found:
        raise ValueError(f"{name} yielded no batches.")
    return outputs_of(model, found, labels)


def outputs_of(model: CalibratedModel, found: Sequence[Details], labels: Sequence[Tensor | None] = ()) -> Outputs:
    """Return the logits, distances and labels of several batches."""
    logits = torch.cat([one.logits for one in found]).detach().cpu()
    columns = [torch.cat([one.distances[layer] for one in found]).detach().cpu() for layer in model.layers]
    distances = torch.stack(columns, dim=1) if columns else logits.new_zeros((len(logits), 0))
    stage = model.calibrator.density_stage
    k = None if stage is None else stage.k_  # The head knows none if all weights are zero.
    outputs = Outputs(logits.numpy(), join_labels(labels))
    return outputs.with_distances(Distances(distances.numpy(), model.layers, k))


def conditions_of(
    model: CalibratedModel,
    loaders: Iterable[Any] | Mapping[str, Iterable[Any]],
    *,
    batch_fn: BatchFn[Any] | None,
    severity_from_names: bool,
    natural: Collection[str],
    progress: bool,
) -> list[Condition]:
    """Run a calibrated model over one loader, or over named ones, and return one condition for each."""
    if isinstance(loaders, (list, tuple)) and any(isinstance(one, DataLoader) for one in loaders):
        raise TypeError("Several loaders need names: pass a dict, such as {'clean': loader, 'fog-3': other_loader}.")
    named = loaders if isinstance(loaders, Mapping) else {TEST_SET: loaders}
    if unknown := sorted(set(natural) - set(named)):
        raise ValueError(f"natural must name loaders, {', '.join(named)}, got {', '.join(unknown)}.")
    parsed = {name: (name, 0) for name in named}
    names = [name for name in named if name not in natural]
    if severity_from_names:
        parsed |= zip(names, severities_from_names(names), strict=True)
    in_domain = [name for name in names if parsed[name][1] == 0]
    if len(in_domain) > 1:
        warn_user(
            f"{', '.join(in_domain)} have no severity, so they count as one in-domain set. Name those under shift with "
            f"a severity ('rain-severity-3'), or pass natural={in_domain[1:]!r}."
        )
    conditions = []
    for name, loader in named.items():
        one = measured_outputs(model, loader, with_labels=True, batch_fn=batch_fn, name=name, progress=progress)
        check_labelled(one, f"The loader {name!r}", NEEDS_LABELS)
        kind, severity = parsed[name]
        conditions.append(Condition(kind, one, severity, natural=name in natural))
    return conditions
