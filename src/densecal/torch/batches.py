"""Split a loader's batches into the arguments of the classifier's ``forward`` and the labels."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, TypeAlias, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from densecal.arrays import as_array
from densecal.torch.wrappers import unwrapped

BatchT = TypeVar("BatchT")
Arguments: TypeAlias = tuple[Sequence[object], Mapping[str, object], object]
"""What ``batch_fn`` returns: positional arguments, keyword arguments, and labels or None."""
BatchFn: TypeAlias = Callable[[BatchT], Arguments]

LABEL_KEYS = ("labels", "label")
FORMS = "a tensor of inputs, a tuple (inputs, labels) or a mapping with 'labels' or 'label'"
USE_BATCH_FN = (
    "For other batches pass batch_fn, a function from a batch to (args, kwargs, labels): the arguments of forward, and "
    "the labels as class indices or None, such as batch_fn=lambda batch: ((batch['image'],), {}, batch['label'])."
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
        """Return the arguments of the first samples; of all samples if a packed sequence is among the arguments."""
        if any(isinstance(value, PackedSequence) for value in (*self.args, *self.kwargs.values())):
            return self
        total = self.n_samples
        return self.map(lambda tensor: tensor[:n_samples] if tensor.ndim > 0 and len(tensor) == total else tensor)


def split_batches(
    loader: Iterable[Any], model: nn.Module, batch_fn: BatchFn[Any] | None = None, *, with_labels: bool = True
) -> Iterator[Batch]:
    """Split the batches of a loader; skip batches without samples, which a filter in a collate_fn can leave."""
    for batch in loader:
        split = split_batch(batch, model, batch_fn, with_labels=with_labels)
        if split.n_samples:
            yield split


def split_batch(
    batch: object, model: nn.Module, batch_fn: BatchFn[Any] | None = None, *, with_labels: bool = True
) -> Batch:
    """Split a batch into arguments and labels, by ``batch_fn`` or by convention.

    The conventions are those of `extract`. In (inputs, labels) the inputs may also be a tuple of positional arguments
    or a mapping of keyword arguments. A `Batch` is returned unchanged. Without ``with_labels``, what stands in their
    place may be anything, such as the names of files.
    """
    if isinstance(batch, Batch):
        return batch
    args, kwargs, labels = _by_convention(batch, model) if batch_fn is None else _call(batch_fn, batch)
    arguments = Batch(tuple(args), dict(kwargs))
    return replace(arguments, labels=_as_labels(labels, arguments.n_samples)) if with_labels else arguments


def _call(batch_fn: BatchFn[Any], batch: object) -> Arguments:
    try:
        returned: Any = batch_fn(batch)
    except StopIteration as error:  # It would end the loop over the batches as if there were no more.
        raise RuntimeError("batch_fn raised StopIteration.") from error
    match returned:
        case (list() | tuple() as args, Mapping() as kwargs, labels):
            return args, kwargs, labels
        case list() | tuple():
            got = ", ".join(type(part).__name__ for part in returned)
        case _:
            got = type(returned).__name__
    raise TypeError(
        "batch_fn must return (args, kwargs, labels): a tuple of positional arguments, a dict of keyword arguments, "
        f"and labels or None; got {got}."
    )


def _by_convention(batch: object, model: nn.Module) -> Arguments:
    if isinstance(batch, (Tensor, PackedSequence)):
        return (batch,), {}, None
    if isinstance(batch, Mapping):
        given = [key for key in LABEL_KEYS if batch.get(key) is not None]
        if len(given) > 1:
            raise TypeError(f"A batch has both 'labels' and 'label'. {USE_BATCH_FN}")
        inputs = {name: value for name, value in batch.items() if name not in LABEL_KEYS}
        _check_names(inputs, model)
        return (), inputs, batch[given[0]] if given else None
    if not isinstance(batch, (tuple, list)):
        raise TypeError(f"A batch must be {FORMS}; got {type(batch).__name__}. {USE_BATCH_FN}")
    if len(batch) == 1:
        return _by_convention(batch[0], model)
    if len(batch) != 2:
        raise TypeError(f"A batch must be {FORMS}; got {type(batch).__name__} of {len(batch)} items. {USE_BATCH_FN}")
    inputs, labels = batch
    if isinstance(inputs, Mapping):
        _check_names(inputs, model)
        return (), inputs, labels
    is_single = isinstance(inputs, PackedSequence) or not isinstance(inputs, (tuple, list))
    return (inputs,) if is_single else inputs, {}, labels


def _check_names(inputs: Mapping[str, Any], model: nn.Module) -> None:
    """Raise unless ``forward`` takes every input by name and needs no other."""
    signature = signature_of(model)
    try:
        signature.bind(**inputs)
    except TypeError:
        raise TypeError(
            f"forward takes {list(signature.parameters)}, but the batch has {list(inputs)}. {USE_BATCH_FN}"
        ) from None


def _as_labels(labels: Any, n_samples: int) -> Tensor | None:
    """Return labels as a tensor with one row per sample; their values are checked later against the logits."""
    if labels is None:
        return None
    if isinstance(labels, Tensor):
        tensor = labels
    else:
        array = as_array(labels, "labels")
        if array.dtype.kind not in "iufb":
            raise TypeError(
                f"labels must be integers, got {type(labels).__name__} of {array.dtype}. {USE_BATCH_FN} For batches "
                "without labels: batch_fn=lambda batch: ((batch[0],), {}, None)."
            )
        # A copy, since torch rejects the negative strides of labels[::-1].
        tensor = torch.from_numpy(array.astype(np.int64 if array.dtype.kind in "iu" else array.dtype))
    if tensor.ndim == 0 or len(tensor) != n_samples:
        wrap = "" if tensor.ndim else "If the loader yields single samples, wrap it: DataLoader(it, batch_size=256). "
        raise ValueError(
            f"labels must have one row per sample: got shape {tuple(tensor.shape)} for {n_samples} samples. "
            f"{wrap}{USE_BATCH_FN}"
        )
    return tensor[:, 0] if tensor.ndim == 2 and tensor.shape[1] == 1 else tensor


def positional_of(model: nn.Module) -> list[str]:
    """Return the names of the positional parameters of ``forward``."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [name for name, parameter in signature_of(model).parameters.items() if parameter.kind in kinds]


def signature_of(model: nn.Module) -> inspect.Signature:
    """Return the signature of ``forward``; for torch's own wrappers, that of the wrapped classifier."""
    try:
        return inspect.signature(unwrapped(model)[0].forward)
    except ValueError:  # A scripted module has no signature.
        return inspect.signature(lambda *_, **__: None)


def iterate_tensors(value: object) -> Iterator[Tensor]:
    """Yield the tensors in nested tuples, lists and mappings."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, PackedSequence):  # Its first time step has one row per sample.
        yield value.data[: int(value.batch_sizes[0])]
    elif isinstance(value, (tuple, list, Mapping)):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from iterate_tensors(item)


def map_tensors(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Apply a function to the tensors in nested tuples, lists and mappings, in the order of `iterate_tensors`."""
    if isinstance(value, (Tensor, PackedSequence)):
        return change(value)  # type: ignore[arg-type]
    if isinstance(value, (tuple, list)):
        items = [map_tensors(item, change) for item in value]
        return value._make(items) if hasattr(value, "_make") else type(value)(items)
    if isinstance(value, Mapping):
        return {key: map_tensors(item, change) for key, item in value.items()}
    return value


def device_of(model: nn.Module) -> torch.device:
    """Return the device of a model's first parameter or buffer; the CPU if it has none."""
    first = next(chain(model.parameters(), model.buffers()), None)
    return torch.device("cpu") if first is None else first.device
