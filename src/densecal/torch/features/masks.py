"""Padding: masks of known polarity among a classifier's arguments, and warnings about padding without one."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor, nn

from densecal.errors import CalibrationWarning
from densecal.torch.features.batches import iterate_tensors, positional_of

MASK = "attention_mask"
SHORT_MASKS = ("mask", "input_mask")
PADDING_MASKS = ("src_key_padding_mask", "key_padding_mask")
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.uint8, torch.int8)


def token_mask(model: nn.Module, args: Sequence[object], kwargs: Mapping[str, object]) -> Tensor | None:
    """Return the mask of the tokens that count, of shape (samples, tokens), or None if no argument is one.

    An ``attention_mask`` is nonzero at tokens. A ``src_key_padding_mask`` or ``key_padding_mask`` marks padding, as in
    :class:`torch.nn.TransformerEncoder`. A ``mask`` or ``input_mask`` of integers next to token ids of the same shape
    is nonzero at tokens, as tokenizers write it.
    """
    tables = _tables(model, args, kwargs)
    if MASK in tables:
        return tables[MASK]
    for name in PADDING_MASKS:
        if name in tables:
            # A padding mask of floats is added to the attention scores: it is zero at tokens.
            return tables[name] == 0
    integers = {name: table for name, table in tables.items() if table.dtype in INTEGERS}
    for name in SHORT_MASKS:
        mask = integers.pop(name, None)
        if mask is not None and any(table.shape == mask.shape for table in integers.values()):
            return mask
    return None


def warn_of_unknown_mask(model: nn.Module, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
    """Warn about a mask of unknown polarity next to the token ids."""
    if token_mask(model, args, kwargs) is not None:
        return
    tables = _tables(model, args, kwargs)
    shapes = {table.shape for table in tables.values() if table.dtype in INTEGERS}
    for name, table in tables.items():
        if table.dtype == torch.bool and table.shape in shapes:
            warnings.warn(
                f"The classifier takes {name!r}, which may mark the tokens or the padding, so padding counts in the "
                f"features. Name it {MASK} if True means a token, or {PADDING_MASKS[1]} if True means padding.",
                CalibrationWarning,
                stacklevel=2,
            )


def warn_of_padding(
    model: nn.Module, args: Sequence[object], kwargs: Mapping[str, object], pooled: Collection[tuple[int, ...]]
) -> None:
    """Warn about token ids that look padded when no mask is given and layers are averaged over the axes ``pooled``."""
    tokens = next(iterate_tensors((args, kwargs)), None)
    if tokens is None or tokens.ndim != 2 or tokens.dtype not in INTEGERS or tuple(tokens.shape[1:]) not in pooled:
        return
    value = _padding_value(tokens)
    if value is not None and token_mask(model, args, kwargs) is None:
        warnings.warn(
            f"The token ids look padded with {value}, and there is no mask: padding counts in the features, so a "
            f"text's confidence depends on the texts it is batched with. Let forward take {MASK!r} and have the loader "
            "provide it.",
            CalibrationWarning,
            stacklevel=2,
        )


def _padding_value(tokens: Tensor) -> int | None:
    """Return the id that fills up shorter texts at the end or the beginning, or None if none seems to."""
    for sided in (tokens, tokens.flip(1)):
        value = sided[:, -1].mode().values
        same = sided == value
        runs = same.flip(1).long().cumprod(dim=1).sum(dim=1)
        # In a table of numbers such runs rarely have three lengths and no interruption.
        if bool((runs == same.sum(dim=1)).all()) and len(set(runs.tolist())) > 2:
            return int(value)
    return None


def _tables(model: nn.Module, args: Sequence[object], kwargs: Mapping[str, object]) -> dict[str, Tensor]:
    """Return the arguments with two axes by name, including the items of a mapping that is an argument."""
    given = dict(kwargs)
    if len(args) > 1:  # With a single tensor, as usual, do not inspect the signature on each call.
        given |= zip(positional_of(model), args, strict=False)
    for value in (*args, *kwargs.values()):
        if isinstance(value, Mapping):
            given |= value
    return {name: value for name, value in given.items() if isinstance(value, Tensor) and value.ndim == 2}
