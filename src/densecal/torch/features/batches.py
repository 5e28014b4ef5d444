"""What a loader gives, taken apart into a classifier's arguments and the labels."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from densecal.errors import CalibrationWarning
from densecal.torch.features.labels import ADVICE, as_labels, find_labels, flat
from densecal.torch.wrappers import unwrapped

LABEL_KEYS = ("labels", "label", "targets", "target", "y")
BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
RENAME = "Give a dict with forward's names as keys, or a tuple (inputs, labels)."


@dataclass(frozen=True)
class Batch:
    """The arguments of one forward pass, and the labels where the loader gave them."""

    inputs: tuple[Any, ...]
    named: dict[str, Any]
    labels: Tensor | None
    candidates: Mapping[int, Tensor] = field(default_factory=dict)
    """The items of the loader's tuple that may be the labels, by their places; the first is taken."""

    @property
    def samples(self) -> int:
        """How many samples the batch holds."""
        first = next((value for value in (*self.inputs, *self.named.values()) if isinstance(value, Tensor)), None)
        if first is None or first.ndim == 0:
            raise TypeError(
                "A batch must hold a tensor with one row a sample: an image tensor, (inputs, labels), or a dict."
            )
        return len(first)

    def to(self, device: torch.device) -> Batch:
        """Move the inputs to a device; the labels stay where they are."""
        return replace(
            self,
            inputs=tuple(_moved(value, device) for value in self.inputs),
            named={name: _moved(value, device) for name, value in self.named.items()},
        )

    def head(self, samples: int) -> Batch:
        """Return the first few samples."""
        total = self.samples

        def cut(value: Any) -> Any:
            is_batched = isinstance(value, Tensor) and value.ndim > 0 and len(value) == total
            return value[:samples] if is_batched else value

        return Batch(
            tuple(cut(value) for value in self.inputs),
            {name: cut(value) for name, value in self.named.items()},
            None if self.labels is None else self.labels[:samples],
        )


def split_batch(batch: Any, model: nn.Module) -> Batch:
    """Take a loader's batch apart.

    A tensor is the input alone. In a tuple or list the labels are the first item after the inputs that has one integer
    (or a one-hot row) a sample, and what follows them is ignored;
    :class:`~densecal.torch.features.labels.Doubt` tells whether that could be the labels as well. In a dict they are the
    item named labels, label, targets, target or y; those whose names ``forward`` knows go to it by name, and a warning
    names the others, which do not. Where it knows none, the only tensor goes by position. A batch that was taken apart
    before comes back as it is.

    Examples
    --------
    >>> batch = split_batch((torch.zeros(2, 3, 8, 8), torch.tensor([1, 0])), nn.Identity())
    >>> batch.samples, batch.labels
    (2, tensor([1, 0]))
    """
    if isinstance(batch, Batch):
        return batch
    if isinstance(batch, Mapping):
        return _from_mapping(batch, model)
    if isinstance(batch, Tensor):
        return Batch((batch,), {}, None)
    if not isinstance(batch, (tuple, list)) or not batch:
        raise TypeError(f"A batch must be a tensor, a tuple (inputs, labels) or a dict, got {type(batch).__name__}.")
    if isinstance(batch[0], Mapping):
        return _labelled(_from_mapping(batch[0], model), batch)
    if isinstance(batch[0], (tuple, list)):
        return _labelled(Batch(tuple(batch[0]), {}, None), batch)
    labelled = _labelled(Batch((batch[0],), {}, None), batch, max(1, _needed(model)))
    inputs = tuple(batch[: next(iter(labelled.candidates), None)])
    _refuse_too_many(inputs, model)
    return replace(labelled, inputs=inputs)


def _labelled(inner: Batch, batch: Sequence[Any], start: int = 1) -> Batch:
    candidates = find_labels(batch, start, inner.samples)
    return replace(inner, labels=next(iter(candidates.values()), inner.labels), candidates=candidates)


def _refuse_too_many(inputs: tuple[Any, ...], model: nn.Module) -> None:
    """Refuse what is neither labels nor an input before the classifier does so in words of its own."""
    most = len(positional_of(model))
    takes_any = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters_of(model).values())
    if len(inputs) > most and not takes_any and not _has_pre_hooks(model):
        first = inputs[most]
        kind = f"{first.dtype} of shape {tuple(first.shape)}" if isinstance(first, Tensor) else type(first).__name__
        raise TypeError(
            f"Item {most} of a batch ({kind}) is neither an input, of which the classifier's forward takes {most}, nor "
            f"labels: one integer a sample, or one-hot rows. {ADVICE}"
        )


def _pop_labels(items: dict[str, Any]) -> Tensor | None:
    present = [key for key in LABEL_KEYS if items.get(key) is not None]
    for key in present:
        labels = as_labels(items[key])
        if labels is not None:
            del items[key]
            return flat(labels)
    if present:
        raise TypeError(
            f"The batch's {present[0]!r} must be one integer a sample, as a tensor, a NumPy array or a list; got "
            f"{type(items[present[0]]).__name__}."
        )
    return None


def _from_mapping(batch: Mapping[str, Any], model: nn.Module) -> Batch:
    items = dict(batch)
    labels = _pop_labels(items)
    parameters = parameters_of(model)
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return Batch((), items, labels)
    by_name = [name for name, parameter in parameters.items() if parameter.kind in BY_NAME]
    known = {key: value for key, value in items.items() if key in by_name}
    unknown = {key: value for key, value in items.items() if key not in known}
    if known:
        needed = [name for name in by_name if parameters[name].default is inspect.Parameter.empty]
        missing = [name for name in needed if name not in known]
        if missing:
            raise ValueError(f"The classifier's forward needs {missing}, and the batch is {_named(batch)}. {RENAME}")
        _warn_of(list(unknown))
        return Batch((), known, labels)
    tensors = {key: value for key, value in items.items() if len(items) == 1 or isinstance(value, Tensor)}
    if len(tensors) != 1:
        raise ValueError(
            f"The classifier's forward takes {by_name}, none of which the batch has: it is {_named(batch)}. {RENAME}"
        )
    _warn_of([key for key in unknown if key not in tensors])
    return Batch(tuple(tensors.values()), {}, labels)


def _named(batch: Mapping[str, Any]) -> str:
    return f"a dict of {list(batch)}"


def _warn_of(keys: list[str]) -> None:
    if keys:
        warnings.warn(
            f"The classifier's forward does not take {keys}, which the batches hold: left out.",
            CalibrationWarning,
            stacklevel=2,
        )


def positional_of(model: nn.Module) -> list[str]:
    """Return the names of what a classifier's forward takes by position."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [name for name, parameter in parameters_of(model).items() if parameter.kind in kinds]


def _needed(model: nn.Module) -> int:
    """Return how many inputs the classifier cannot do without, as far as its forward tells."""
    parameters = parameters_of(model)
    needed = [name for name in positional_of(model) if parameters[name].default is inspect.Parameter.empty]
    return 0 if _has_pre_hooks(model) else len(needed)


def _has_pre_hooks(model: nn.Module) -> bool:
    """Whether hooks may make something else of the inputs before forward takes them."""
    return any(module._forward_pre_hooks for module in (model, unwrapped(model)[0]))


def parameters_of(model: nn.Module) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of the forward that a model's arguments go to: a wrapper's are those of what it wraps.

    Examples
    --------
    >>> list(parameters_of(nn.DataParallel(nn.Identity())))
    ['input']
    """
    try:
        return inspect.signature(unwrapped(model)[0].forward).parameters
    except ValueError:  # A traced module has no signature.
        return inspect.signature(lambda *_, **__: None).parameters


def _moved(value: Any, device: torch.device) -> Any:
    if isinstance(value, Tensor):
        return value.to(device, non_blocking=True)
    if isinstance(value, (tuple, list)):
        return type(value)(_moved(item, device) for item in value)
    if isinstance(value, Mapping):
        return {key: _moved(item, device) for key, item in value.items()}
    return value


def device_of(model: nn.Module) -> torch.device:
    """Return where a model's parameters (or buffers) are; the CPU for a model that has none."""
    first = next(chain(model.parameters(), model.buffers()), None)
    return torch.device("cpu") if first is None else first.device
