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

from densecal.torch.wrappers import unwrapped

BatchT = TypeVar("BatchT")
Arguments: TypeAlias = tuple[Sequence[object], Mapping[str, object], object]
"""What ``batch_fn`` returns: positional arguments, keyword arguments, and labels or None."""
BatchFn: TypeAlias = Callable[[BatchT], Arguments]

LABEL_KEYS = ("labels", "label")
LIKELY_LABEL_KEYS = ("target", "targets", "y")
BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
FORMS = "a tensor of inputs, a tuple (inputs, labels) or a mapping with 'labels' or 'label'"
USE_BATCH_FN = (
    "For other batches pass batch_fn=lambda batch: (args, kwargs, labels): a tuple and a dict of arguments of forward, "
    "and the labels as class indices, or None."
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

    By convention a tensor holds the inputs, a tuple or list is (inputs, labels) or (inputs,), and a mapping has the
    labels under ``"labels"`` or ``"label"`` and passes its other items to ``forward`` by name. In (inputs, labels) the
    inputs are one tensor, a tuple of positional arguments or a mapping of keyword arguments. A `Batch` is returned
    unchanged. Without ``with_labels``, what stands in their place may be anything, such as the names of files.
    """
    if isinstance(batch, Batch):
        return batch
    args, kwargs, labels = _by_convention(batch, model) if batch_fn is None else _call(batch_fn, batch)
    arguments = Batch(tuple(args), dict(kwargs))
    return replace(arguments, labels=_as_labels(labels, arguments.n_samples)) if with_labels else arguments


def _call(batch_fn: BatchFn[Any], batch: object) -> Arguments:
    try:
        arguments: Any = batch_fn(batch)
    except StopIteration as error:  # It would end the loop over the batches as if there were no more.
        raise RuntimeError("batch_fn raised StopIteration.") from error
    if isinstance(arguments, (tuple, list)) and len(arguments) == 3:
        args, kwargs, labels = arguments
        if isinstance(args, (tuple, list)) and isinstance(kwargs, Mapping):
            return args, kwargs, labels
    is_sequence = isinstance(arguments, (tuple, list))
    got = [type(part).__name__ for part in arguments] if is_sequence else type(arguments).__name__
    raise TypeError(
        "batch_fn must return (args, kwargs, labels): a tuple of positional arguments, a dict of keyword arguments, "
        f"and labels or None; got {got}."
    )


def _by_convention(batch: object, model: nn.Module, source: str = "batch") -> Arguments:
    """Split a batch; ``source`` is the batch as an expression, for the errors that show a batch_fn."""
    if isinstance(batch, (Tensor, PackedSequence)):
        return (batch,), {}, None
    if isinstance(batch, Mapping):
        return _split_mapping(batch, model, source)
    if not isinstance(batch, (tuple, list)):
        raise TypeError(f"A batch must be {FORMS}; got {type(batch).__name__}. {USE_BATCH_FN}")
    if len(batch) == 1:
        return _by_convention(batch[0], model, f"{source}[0]")
    if len(batch) != 2:
        is_usual = (
            len(batch) > 2 and isinstance(batch[0], Tensor) and batch[0].ndim > 1 and len(_names_of(model)[1]) < 2
        )
        hint = _show(f"({source}[0],), {{}}", f"{source}[1]") if is_usual else USE_BATCH_FN
        raise TypeError(f"A batch must be {FORMS}; got {type(batch).__name__} of {len(batch)} items. {hint}")
    inputs, labels = batch
    if isinstance(inputs, Mapping):
        _check_names(inputs, model, f"{source}[0]", f"{source}[1]")
        return (), inputs, labels
    is_single = isinstance(inputs, PackedSequence) or not isinstance(inputs, (tuple, list))
    return (inputs,) if is_single else inputs, {}, labels


def _split_mapping(batch: Mapping[str, Any], model: nn.Module, source: str) -> Arguments:
    given = [key for key in LABEL_KEYS if batch.get(key) is not None]
    labels = f"{source}[{given[0]!r}]" if given else None
    inputs = {name: value for name, value in batch.items() if name not in LABEL_KEYS}
    if len(given) > 1:
        raise TypeError(f"A batch has both 'labels' and 'label'. {_suggest(inputs, model, source, labels)}")
    _check_names(inputs, model, source, labels)
    return (), inputs, batch[given[0]] if given else None


def _check_names(inputs: Mapping[str, Any], model: nn.Module, source: str, labels: str | None) -> None:
    """Raise unless ``forward`` takes every input by name and needs no other."""
    by_name, needed = _names_of(model)
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters_of(model).values())
    if set(needed) <= inputs.keys() and (takes_any or inputs.keys() <= set(by_name)):
        return
    raise TypeError(
        f"forward takes {by_name}, but the batch has {list(inputs)}. {_suggest(inputs, model, source, labels)}"
    )


def _suggest(inputs: Mapping[str, Any], model: nn.Module, source: str, labels: str | None) -> str:
    """Return a sentence that shows a batch_fn for inputs by name; ``source`` and ``labels`` are expressions."""
    by_name, needed = _names_of(model)
    pairs = {name: name for name in inputs if name in by_name}
    unused = [name for name in inputs if name not in pairs]
    # Labels have one axis, so what has more is likelier to be an input.
    unused.sort(key=lambda name: all(tensor.ndim < 2 for tensor in iterate_tensors(inputs[name])))
    if labels is None and (likely := [name for name in unused if name in LIKELY_LABEL_KEYS]):
        unused.remove(likely[0])
        labels = f"{source}[{likely[0]!r}]"
    missing = [name for name in needed if name not in pairs]
    if len(missing) > len(unused) or not (pairs or unused):
        return USE_BATCH_FN
    if pairs or len(missing) > 1:
        pairs |= zip(missing, unused, strict=False)
        named = ", ".join(f"{name!r}: {source}[{key!r}]" for name, key in pairs.items())
        return _show(f"(), {{{named}}}", labels)
    one = _show(f"({source}[{unused[0]!r}],), {{}}", labels)
    return f"{one} If forward takes the mapping itself: batch_fn=lambda batch: (({source},), {{}}, {labels})."


def _show(arguments: str, labels: str | None) -> str:
    return (
        "Pass batch_fn, a function from a batch to (args, kwargs, labels), such as "
        f"batch_fn=lambda batch: ({arguments}, {labels})."
    )


def _names_of(model: nn.Module) -> tuple[list[str], list[str]]:
    """Return the names of what ``forward`` takes by name, and of those that have no default."""
    taken = {name: parameter for name, parameter in parameters_of(model).items() if parameter.kind in BY_NAME}
    return list(taken), [name for name, parameter in taken.items() if parameter.default is parameter.empty]


def _as_labels(labels: Any, n_samples: int) -> Tensor | None:
    """Return labels as a tensor with one row per sample; their values are checked later against the logits."""
    if labels is None:
        return None
    if isinstance(labels, Tensor):
        tensor = labels
    else:
        array = np.asarray(labels)
        if array.dtype.kind not in "iufb":
            raise TypeError(
                f"labels must be integers, got {type(labels).__name__} of {array.dtype}. {USE_BATCH_FN} For batches "
                "without labels: batch_fn=lambda batch: ((batch[0],), {}, None)."
            )
        tensor = torch.from_numpy(array.astype(np.int64) if array.dtype.kind in "iu" else array)
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
