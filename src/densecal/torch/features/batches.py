"""Split a loader's batches into the arguments of the classifier's ``forward`` and the labels."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from densecal.torch.wrappers import unwrapped

BatchT = TypeVar("BatchT")
Arguments: TypeAlias = tuple[Sequence[object], Mapping[str, object], object]
"""What ``batch_fn`` returns: positional arguments, keyword arguments, and labels or None."""
BatchFn: TypeAlias = Callable[[BatchT], Arguments]

LABEL_KEYS = ("labels", "label")
BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
FORMS = "a tensor of inputs, a tuple (inputs, labels) or a mapping with 'labels' or 'label'"
USE_BATCH_FN = (
    "For other batches pass batch_fn, a function that maps a batch to (args, kwargs, labels), such as "
    "batch_fn=lambda batch: ((batch[0],), {}, batch[1])."
)


@dataclass(frozen=True)
class Batch:
    """The arguments of one forward pass, and the labels if there are any."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    labels: Tensor | None = None

    @property
    def tensors(self) -> list[Tensor]:
        """All tensors in the arguments, including nested ones."""
        return list(iterate_tensors((self.args, self.kwargs)))

    @property
    def n_samples(self) -> int:
        """Number of samples: the length of the first tensor."""
        first = next(iterate_tensors((self.args, self.kwargs)), None)
        if first is None or first.ndim == 0:
            raise TypeError(f"A batch must have a tensor with one row per sample, as in {FORMS}. {USE_BATCH_FN}")
        return len(first)

    def map(self, change: Callable[[Tensor], Tensor]) -> Batch:
        """Return the batch with a function applied to every tensor in the arguments."""
        return replace(self, args=map_tensors(self.args, change), kwargs=map_tensors(self.kwargs, change))

    def to(self, device: torch.device) -> Batch:
        """Return the batch with its arguments, but not its labels, on a device."""
        return self.map(lambda tensor: tensor.to(device, non_blocking=True))

    def head(self, n_samples: int) -> Batch:
        """Return the batch with the arguments of its first samples."""
        total = self.n_samples
        return self.map(lambda tensor: tensor[:n_samples] if tensor.ndim > 0 and len(tensor) == total else tensor)


def split_batch(batch: object, model: nn.Module, batch_fn: BatchFn[Any] | None = None) -> Batch:
    """Split a batch into arguments and labels, by ``batch_fn`` or by convention.

    By convention a tensor holds the inputs, a tuple or list is (inputs, labels) or (inputs,), and a mapping has the
    labels under ``"labels"`` or ``"label"`` and passes its other items to ``forward`` by name. In (inputs, labels) the
    inputs are one tensor, a tuple of positional arguments or a mapping of keyword arguments. A `Batch` is returned
    unchanged.
    """
    if isinstance(batch, Batch):
        return batch
    args, kwargs, labels = _by_convention(batch, model) if batch_fn is None else _checked(batch_fn(batch))
    arguments = Batch(tuple(args), dict(kwargs))
    return replace(arguments, labels=_as_labels(labels, arguments.n_samples))


def _checked(arguments: Any) -> Arguments:
    if isinstance(arguments, (tuple, list)) and len(arguments) == 3:
        args, kwargs, labels = arguments
        if isinstance(args, (tuple, list)) and isinstance(kwargs, Mapping):
            return args, kwargs, labels
    kinds = [type(part).__name__ for part in arguments] if isinstance(arguments, (tuple, list)) else arguments
    raise TypeError(
        "batch_fn must return (args, kwargs, labels): a tuple of positional arguments, a dict of keyword arguments, "
        f"and labels or None; got {kinds if isinstance(kinds, list) else type(kinds).__name__}."
    )


def _by_convention(batch: object, model: nn.Module) -> Arguments:
    if isinstance(batch, Tensor):
        return (batch,), {}, None
    if isinstance(batch, Mapping):
        return _split_mapping(batch, model)
    if isinstance(batch, (tuple, list)) and len(batch) == 1:
        return _by_convention(batch[0], model)
    if not isinstance(batch, (tuple, list)) or len(batch) != 2:
        size = f" of {len(batch)} items" if isinstance(batch, (tuple, list)) else ""
        raise TypeError(f"A batch must be {FORMS}; got {type(batch).__name__}{size}. {USE_BATCH_FN}")
    inputs, labels = batch
    if isinstance(inputs, Mapping):
        _check_names(inputs, inputs, None, model)
        return (), inputs, labels
    return inputs if isinstance(inputs, (tuple, list)) else (inputs,), {}, labels


def _split_mapping(batch: Mapping[str, Any], model: nn.Module) -> Arguments:
    given = [key for key in LABEL_KEYS if batch.get(key) is not None]
    if len(given) > 1:
        raise TypeError(f"A batch has both 'labels' and 'label'. {USE_BATCH_FN}")
    label = given[0] if given else None
    inputs = {name: value for name, value in batch.items() if name not in LABEL_KEYS}
    _check_names(inputs, batch, label, model)
    return (), inputs, None if label is None else batch[label]


def _check_names(inputs: Mapping[str, Any], batch: Mapping[str, Any], label: str | None, model: nn.Module) -> None:
    """Raise unless ``forward`` accepts every input by name and requires no other."""
    parameters = parameters_of(model)
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    by_name = {name: parameter for name, parameter in parameters.items() if parameter.kind in BY_NAME}
    needed = {name for name, parameter in by_name.items() if parameter.default is parameter.empty}
    known = [name for name in inputs if takes_any or name in by_name]
    if len(known) == len(inputs) and needed <= inputs.keys():
        return
    named = ", ".join(f"{name!r}: batch[{name!r}]" for name in known)
    arguments = f"(), {{{named}}}" if known else f"(batch[{next(iter(inputs), 'inputs')!r}],), {{}}"
    labels = f"batch[{label!r}]" if label else None
    raise TypeError(
        f"forward takes {list(by_name)}, but the batch has {list(batch)}. Pass batch_fn, a function that maps a batch "
        f"to (args, kwargs, labels), such as batch_fn=lambda batch: ({arguments}, {labels})."
    )


def _as_labels(labels: Any, n_samples: int) -> Tensor | None:
    """Return labels as a tensor with one row per sample; their values are checked later against the logits."""
    if labels is None:
        return None
    if isinstance(labels, Tensor):
        tensor = labels
    else:
        array = np.asarray(labels)
        if array.dtype.kind not in "iufb":
            raise TypeError(f"labels must be integers, got {type(labels).__name__} of {array.dtype}. {USE_BATCH_FN}")
        tensor = torch.from_numpy(array.astype(np.int64) if array.dtype.kind in "iu" else array)
    if tensor.ndim == 0 or len(tensor) != n_samples:
        raise ValueError(
            f"labels must have one row per sample: got shape {tuple(tensor.shape)} for {n_samples} samples. "
            f"{USE_BATCH_FN}"
        )
    return tensor[:, 0] if tensor.ndim == 2 and tensor.shape[1] == 1 else tensor


def positional_of(model: nn.Module) -> list[str]:
    """Return the names of the positional parameters of ``forward``."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [name for name, parameter in parameters_of(model).items() if parameter.kind in kinds]


def parameters_of(model: nn.Module) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of ``forward``; for torch's own wrappers, those of the wrapped classifier."""
    try:
        return inspect.signature(unwrapped(model)[0].forward).parameters
    except ValueError:  # A scripted module has no signature.
        return inspect.signature(lambda *_, **__: None).parameters


def iterate_tensors(value: object) -> Iterator[Tensor]:
    """Yield the tensors in nested tuples, lists and mappings."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list, Mapping)):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from iterate_tensors(item)


def map_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Return a nested structure with a function applied to its tensors, in the order of `iterate_tensors`."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, (tuple, list)):
        return type(value)(map_tensors(item, change) for item in value)
    if isinstance(value, Mapping):
        return {key: map_tensors(item, change) for key, item in value.items()}
    return value


def device_of(model: nn.Module) -> torch.device:
    """Return the device of a model's first parameter or buffer; the CPU if it has none."""
    first = next(chain(model.parameters(), model.buffers()), None)
    return torch.device("cpu") if first is None else first.device
