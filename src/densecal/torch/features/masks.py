"""Which tokens of a text count: masks found among a classifier's arguments, and warnings where padding has none."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from densecal.errors import CalibrationWarning
from densecal.torch.features.batches import positional_of

MASK = "attention_mask"
SHORT_MASKS = ("mask", "input_mask")
PADDING_MASKS = ("src_key_padding_mask", "key_padding_mask")
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.uint8, torch.int8)


def token_mask(model: nn.Module, inputs: Sequence[Any], named: Mapping[str, Any]) -> Tensor | None:
    """Return which tokens count, (samples, tokens), where the arguments of a forward pass say so, by name or position.

    An ``attention_mask`` counts what is not zero; a ``src_key_padding_mask`` or ``key_padding_mask``, as
    :class:`torch.nn.TransformerEncoder` has it, marks the padding. A ``mask`` or ``input_mask`` is taken as a
    tokenizer's, whose ones count, where it holds integers beside token numbers of the same shape.

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
    tables = _tables(model, inputs, named)
    if MASK in tables:
        return tables[MASK]
    for name in PADDING_MASKS:
        if name in tables:
            # A padding mask of floats is added to the attention's scores: zero where a token counts.
            return tables[name] == 0
    integers = {name: table for name, table in tables.items() if table.dtype in INTEGERS}
    for name in SHORT_MASKS:
        mask = integers.pop(name, None)
        if mask is not None and any(table.shape == mask.shape for table in integers.values()):
            return mask
    return None


def warn_of_unknown_mask(model: nn.Module, inputs: Sequence[Any], named: Mapping[str, Any]) -> None:
    """Warn where something beside the token numbers looks like a mask of which nobody knows what it marks."""
    tables = _tables(model, inputs, named)
    if token_mask(model, inputs, named) is not None:
        return
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
    model: nn.Module, inputs: Sequence[Any], named: Mapping[str, Any], pooled: Collection[tuple[int, ...]]
) -> None:
    """Warn where token numbers end, or begin, in runs of one number that differ in length: padding without a mask.

    Parameters
    ----------
    model, inputs, named :
        As in :func:`token_mask`.
    pooled : collection of tuples of int
        The axes that the layers are averaged over.
    """
    tokens = next((value for value in (*inputs, *named.values()) if isinstance(value, Tensor)), None)
    if tokens is None or tokens.ndim != 2 or tokens.dtype not in INTEGERS or tuple(tokens.shape[1:]) not in pooled:
        return
    value = padding_of(tokens)
    if value is not None and token_mask(model, inputs, named) is None:
        warnings.warn(
            f"The token numbers look padded with {value}, and no mask says so: the padding counts in the features, and "
            f"a text beside longer ones gets another confidence. Let forward take {MASK!r}, and have the loader give "
            "it.",
            CalibrationWarning,
            stacklevel=2,
        )


def padding_of(tokens: Tensor) -> int | None:
    """Return the number that fills up shorter texts, at the end or at the beginning, or None if none seems to.

    Examples
    --------
    >>> padding_of(torch.tensor([[5, 7, 9, 4], [6, 8, 3, 0], [6, 8, 0, 0], [4, 4, 2, 1]]))
    0
    """
    for sided in (tokens, tokens.flip(1)):
        value = sided[:, -1].mode().values
        same = sided == value
        runs = same.flip(1).long().cumprod(dim=1).sum(dim=1)
        # In a table of numbers such runs are rarely of three lengths and never interrupted.
        if bool((runs == same.sum(dim=1)).all()) and len(set(runs.tolist())) > 2:
            return int(value)
    return None


def _tables(model: nn.Module, inputs: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return the arguments that have two axes, (samples, tokens) among them, by forward's names."""
    given = dict(named)
    if len(inputs) > 1:  # The usual case, one input, should not cost a look at the signature on each call.
        given |= zip(positional_of(model), inputs, strict=False)
    return {name: value for name, value in given.items() if isinstance(value, Tensor) and value.ndim == 2}
