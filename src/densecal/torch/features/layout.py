"""From the output of a layer to one vector per sample: its axes, the average over the others, and the token mask.

A classifier's output becomes its logits.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from densecal.errors import warn_user
from densecal.torch.batches import iterate_tensors, positional_of
from densecal.torch.features import kernel

MASK = "attention_mask"
SHORT_MASKS = ("mask", "input_mask")
PADDING_MASKS = ("src_key_padding_mask", "key_padding_mask")
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.uint8, torch.int8)


@dataclass(frozen=True)
class Layout:
    """The sample and channel axes of a layer's output.

    Parameters
    ----------
    channels : {"first", "last"}
        The channel axis: axis 1, as in convolutions, or the last axis, as in transformers.
    samples : int, default 0
        The sample axis: 0, or 1 for recurrent and transformer layers with time first.
    masked : bool, default False
        Whether a token mask left the padding out of the average when the layer was chosen. Found from the data.

    Examples
    --------
    >>> Layout("first").pool(torch.ones(2, 3, 4, 4)).shape
    torch.Size([2, 3])
    >>> Layout("last").pool(torch.ones(2, 7, 5)).shape
    torch.Size([2, 5])
    """

    channels: Literal["first", "last"]
    samples: Literal[0, 1] = 0
    masked: bool = False

    def has_tokens(self, shape: tuple[int, ...], mask: Tensor) -> bool:
        """Return whether an output of this shape has the tokens that the mask marks."""
        if self.channels != "last" or len(shape) != 3:
            return False
        return mask.shape == (shape[:2] if self.samples == 0 else (shape[1], shape[0]))

    def pool(self, output: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return float32 averages over space or tokens; ``mask`` (n_samples, n_tokens) is zero at padding."""
        if output.is_nested:
            output, mask = padded(output)
        if output.ndim == 2:
            # Copy, because the next layer may work in place.
            return output.to(torch.float32, copy=True)
        last = self.channels == "last"
        is_masked = mask is not None and self.has_tokens(output.shape, mask)
        if self.samples == 1:
            output = output.transpose(0, 1)
        if mask is not None and is_masked:
            weights = mask.to(output.dtype)[:, :, None]
            total = (output * weights).sum(dim=1, dtype=torch.float32)
            return total / weights.sum(dim=1, dtype=torch.float32).clamp_min(1)
        if output.is_cuda and not last and kernel.serves(output):
            return kernel.mean(output)
        axes = tuple(range(1, output.ndim - 1) if last else range(2, output.ndim))
        return output.mean(dim=axes, dtype=torch.float32)


def padded(output: Tensor) -> tuple[Tensor, Tensor]:
    """Return a nested tensor, such as a TransformerEncoder layer returns, as a padded tensor and its token mask."""
    values = torch.nested.to_padded_tensor(output, 0.0)
    tokens = torch.tensor([len(rows) for rows in output.unbind()], device=values.device)
    return values, torch.arange(values.shape[1], device=values.device) < tokens[:, None]


def first_tensor(output: Any) -> Tensor | None:
    """Return the tensor in a layer's output: itself, its ``last_hidden_state``, or the first of several."""
    if isinstance(output, Tensor):
        return output
    if isinstance(output, Mapping):
        named = output.get("last_hidden_state")
        values = [named] if isinstance(named, Tensor) else list(output.values())
    elif isinstance(output, (tuple, list)):
        values = list(output)
    else:
        values = [getattr(output, "last_hidden_state", None)]
    return next((value for value in values if isinstance(value, Tensor)), None)


def _check_logits_first(first: Tensor | None, outputs: Sequence[Any]) -> None:
    """Raise if the first output is wider than another that could be the logits, as in (features, logits)."""
    if first is None or first.ndim != 2:
        return
    for item in outputs:
        if not isinstance(item, Tensor) or not item.is_floating_point() or item.ndim != 2:
            continue
        # len() would fix the number of samples of an exported graph.
        if item.shape[0] == first.shape[0] and 1 < item.shape[1] < first.shape[1]:
            raise TypeError(
                f"The classifier returned several tensors, of shapes {tuple(first.shape)} and {tuple(item.shape)}, but "
                "only one of them can be the logits. Return the logits alone, first, or in a dict as 'logits'."
            )


def logits_of(output: Any) -> Tensor:
    """Return the logits in a classifier's output; one logit z of a binary classifier becomes the two logits (0, z)."""
    raw = raw_logits_of(output)
    return raw if raw.shape[1] > 1 else torch.cat([torch.zeros_like(raw), raw], dim=1)


def raw_logits_of(output: Any) -> Tensor:
    """Return the logits in a tensor, a tuple, a mapping or an object with ``.logits``: one column if there is one."""
    found: Any = output
    if isinstance(output, Mapping):
        found = output.get("logits")
        if found is None:
            tensors = [value for value in output.values() if isinstance(value, Tensor) and value.ndim == 2]
            # The pooled output of a Hugging Face model without a classification head is not the logits.
            found = tensors[0] if len(tensors) == 1 and "last_hidden_state" not in output else None
    elif not isinstance(output, Tensor):
        found = getattr(output, "logits", None)
        if found is None and isinstance(output, (tuple, list)):
            found = first_tensor(output)
            _check_logits_first(found, output)
    if not isinstance(found, Tensor):
        held = f" with the keys {list(output)}" if isinstance(output, Mapping) else ""
        raise TypeError(
            f"The classifier returned {type(output).__name__}{held}, without logits. Return a tensor of shape "
            "(n_samples, n_classes), a dict with 'logits', or an object with .logits, as Hugging Face's "
            "AutoModelForSequenceClassification does and AutoModel does not."
        )
    if found.ndim not in (1, 2) or 0 in found.shape[1:]:
        raise ValueError(
            "The classifier's output must have shape (n_samples, n_classes), or (n_samples,) or (n_samples, 1) for one "
            f"logit of a binary classifier, got {tuple(found.shape)}."
        )
    column = found if found.ndim == 2 else found[:, None]
    if column.shape[1] == 1 and not found.is_floating_point():
        raise TypeError(
            f"The classifier returned integers of shape {tuple(found.shape)}, which look like class indices. "
            "Calibration needs the scores that they were chosen by: return the logits of shape (n_samples, n_classes)."
        )
    return column


def token_mask(model: nn.Module, args: Sequence[object], kwargs: Mapping[str, object]) -> Tensor | None:
    """Return the token mask of shape (n_samples, n_tokens), zero at padding, or None if no argument is a mask.

    An ``attention_mask`` is nonzero at tokens. A ``src_key_padding_mask`` or ``key_padding_mask`` marks padding, as in
    :class:`torch.nn.TransformerEncoder`. A ``mask`` or ``input_mask`` of integers next to token ids of the same shape
    is nonzero at tokens, as returned by tokenizers.
    """
    tables = _tables(model, args, kwargs)
    if not tables:
        return None
    if MASK in tables:
        return tables[MASK]
    for name in PADDING_MASKS:
        if name in tables:
            # A floating-point padding mask is added to the attention scores, so it is zero at tokens.
            return tables[name] == 0
    integers = {name: table for name, table in tables.items() if table.dtype in INTEGERS}
    for name in SHORT_MASKS:
        mask = integers.pop(name, None)
        if mask is not None and any(table.shape == mask.shape for table in integers.values()):
            return mask
    return None


def warn_of_padding(
    model: nn.Module, args: Sequence[object], kwargs: Mapping[str, object], pooled: Collection[tuple[int, ...]]
) -> None:
    """Warn about a mask of unknown polarity, and about unmasked padding along the axes ``pooled`` of the layers."""
    if not pooled or token_mask(model, args, kwargs) is not None:
        return
    tables = _tables(model, args, kwargs)
    shapes = {table.shape for table in tables.values() if table.dtype in INTEGERS}
    unknown = [name for name, table in tables.items() if table.dtype == torch.bool and table.shape in shapes]
    if unknown:
        warn_user(
            f"The classifier takes {unknown[0]!r}, which may mark the tokens or the padding, so the features include "
            f"padding. Name it {MASK} if True means a token, or {PADDING_MASKS[1]} if True means padding."
        )
        return
    integers = (one for one in iterate_tensors((args, kwargs)) if one.ndim == 2 and one.dtype in INTEGERS)
    tokens = next(integers, None)
    value = None if tokens is None or tuple(tokens.shape[1:]) not in pooled else _padding_value(tokens)
    if value is not None:
        warn_user(
            f"The token ids look padded with {value}, but there is no mask. The features include padding, so the "
            f"confidence of a text depends on the other texts in its batch. Let forward take {MASK!r} and let the "
            "loader provide it."
        )


def warn_of_missing_mask(layers: Iterable[str]) -> None:
    """Warn about a call without a token mask of a model whose ``layers`` were averaged with one for the calibration."""
    warn_user(
        f"The model was calibrated with a token mask, but this call has none, so the features of {', '.join(layers)} "
        f"include padding and the confidences differ. Pass {MASK!r}, or the mask of the calibration, with every batch, "
        "even if no text is padded."
    )


def _padding_value(tokens: Tensor) -> int | None:
    """Return the id that seems to pad shorter texts at the end or the beginning, or None."""
    for sided in (tokens, tokens.flip(1)):
        value = sided[:, -1].mode().values
        same = sided == value
        runs = same.flip(1).long().cumprod(dim=1).sum(dim=1)
        # In integers that are not token ids, such runs rarely have three lengths and no interruption.
        if bool((runs == same.sum(dim=1)).all()) and len(set(runs.tolist())) > 2:
            return int(value)
    return None


def _tables(model: nn.Module, args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, Tensor]:
    """Return the two-dimensional arguments by name, including the items of arguments that are mappings."""
    given = dict(kwargs)
    if len(args) > 1:  # Do not inspect the signature on each call in the usual case of one tensor.
        given |= zip(positional_of(model), args, strict=False)
    for value in (*args, *kwargs.values()):
        if isinstance(value, Mapping):
            given |= value
    return {name: value for name, value in given.items() if isinstance(value, Tensor) and value.ndim == 2}
