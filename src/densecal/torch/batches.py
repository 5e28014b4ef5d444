"""What a loader gives, taken apart into a classifier's arguments and the labels."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from densecal.errors import CalibrationWarning

LABEL_KEYS = ("labels", "label", "targets", "target", "y")
MASK = "attention_mask"
PADDING_MASKS = ("src_key_padding_mask", "key_padding_mask")
BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
RENAME = "Give a dict with forward's names as keys, or a tuple (inputs, labels)."


@dataclass(frozen=True)
class Batch:
    """The arguments of one forward pass, and the labels where the loader gave them."""

    inputs: tuple[Any, ...]
    named: dict[str, Any]
    labels: Tensor | None

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

    A tensor is the input alone. In a tuple or list the labels are the first item after the inputs that has one
    number (or a one-hot row) a sample; what comes after them is ignored. In a dict they are the item named labels,
    label, targets, target or y; those whose names ``forward`` knows go to it by name, and a warning names the others,
    which do not. Where it knows none, the only tensor goes by position.

    Examples
    --------
    >>> batch = split_batch((torch.zeros(2, 3, 8, 8), torch.tensor([1, 0])), nn.Identity())
    >>> batch.samples, batch.labels
    (2, tensor([1, 0]))
    """
    if isinstance(batch, Mapping):
        return _from_mapping(batch, model)
    if isinstance(batch, Tensor):
        return Batch((batch,), {}, None)
    if not isinstance(batch, (tuple, list)) or not batch:
        raise TypeError(f"A batch must be a tensor, a tuple (inputs, labels) or a dict, got {type(batch).__name__}.")
    if isinstance(batch[0], Mapping):
        inner = _from_mapping(batch[0], model)
        labels = _labels_in(batch[1:], inner.samples)
        return inner if labels is None else replace(inner, labels=labels[1])
    if isinstance(batch[0], (tuple, list)):
        inner = Batch(tuple(batch[0]), {}, None)
        labels = _labels_in(batch[1:], inner.samples)
        return inner if labels is None else replace(inner, labels=labels[1])
    samples = Batch((batch[0],), {}, None).samples
    labels = _labels_in(batch[1:], samples)
    if labels is None:
        return Batch(tuple(batch), {}, None)
    return Batch(tuple(batch[: 1 + labels[0]]), {}, labels[1])


def _labels_in(items: Any, samples: int) -> tuple[int, Tensor] | None:
    for position, item in enumerate(items):
        if isinstance(item, Tensor) and item.ndim >= 1 and len(item) == samples:
            if item.ndim == 1:
                return position, item
            if item.ndim == 2 and item.shape[1] > 1 and _is_one_hot(item):
                return position, item
    return None


def _is_one_hot(rows: Tensor) -> bool:
    return bool(((rows == 0) | (rows == 1)).all()) and bool((rows.sum(dim=1) == 1).all())


def _from_mapping(batch: Mapping[str, Any], model: nn.Module) -> Batch:
    items = dict(batch)
    labels = next((items.pop(key) for key in LABEL_KEYS if isinstance(items.get(key), Tensor)), None)
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


def token_mask(model: nn.Module, inputs: Sequence[Any], named: Mapping[str, Any]) -> Tensor | None:
    """Return which tokens count, (samples, tokens), where the arguments of a forward pass say so, by name or position.

    An ``attention_mask`` counts what is not zero; a ``src_key_padding_mask`` or ``key_padding_mask``, as
    :class:`torch.nn.TransformerEncoder` has it, marks the padding.

    Parameters
    ----------
    model : nn.Module
        The classifier, whose ``forward`` names what comes by position.
    inputs, named :
        What it is called with.

    Examples
    --------
    >>> class Text(nn.Module):
    ...     def forward(self, words, src_key_padding_mask=None): ...
    >>> token_mask(Text(), (torch.ones(1, 3), torch.tensor([[False, False, True]])), {})
    tensor([[ True,  True, False]])
    """
    given = dict(named)
    if len(inputs) > 1:  # The usual case, one input, should not cost a look at the signature on each call.
        given |= zip(_positional(model), inputs, strict=False)
    mask = given.get(MASK)
    if isinstance(mask, Tensor) and mask.ndim == 2:
        return mask
    padding = next((given[name] for name in PADDING_MASKS if isinstance(given.get(name), Tensor)), None)
    # A padding mask of floats is added to the attention's scores: zero where a token counts.
    return None if padding is None or padding.ndim != 2 else padding == 0


def _positional(model: nn.Module) -> list[str]:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return [name for name, parameter in parameters_of(model).items() if parameter.kind in kinds]


def parameters_of(model: nn.Module) -> Mapping[str, inspect.Parameter]:
    """Return the parameters of the forward that a model's arguments go to: a wrapper's are those of what it wraps.

    Examples
    --------
    >>> list(parameters_of(nn.DataParallel(nn.Identity())))
    ['input']
    """
    try:
        parameters = inspect.signature(model.forward).parameters
    except ValueError:  # A traced module has no signature.
        return inspect.signature(lambda *_, **__: None).parameters
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters.values()):
        for attribute in ("_orig_mod", "module"):
            if isinstance(inner := getattr(model, attribute, None), nn.Module):
                return parameters_of(inner)
    return parameters


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
