"""Token masks among a classifier's arguments, and warnings about padding without a mask of known polarity."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor, nn

from densecal.errors import warn_user
from densecal.torch.features.batches import iterate_tensors, positional_of

MASK = "attention_mask"
SHORT_MASKS = ("mask", "input_mask")
PADDING_MASKS = ("src_key_padding_mask", "key_padding_mask")
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.uint8, torch.int8)


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


def warn_of_unknown_mask(model: nn.Module, args: Sequence[object], kwargs: Mapping[str, object]) -> None:
    """Warn about a mask of unknown polarity next to the token ids."""
    if token_mask(model, args, kwargs) is not None:
        return
    tables = _tables(model, args, kwargs)
    shapes = {table.shape for table in tables.values() if table.dtype in INTEGERS}
    for name, table in tables.items():
        if table.dtype == torch.bool and table.shape in shapes:
            warn_user(
                f"The classifier takes {name!r}, which may mark the tokens or the padding, so the features include "
                f"padding. Name it {MASK} if True means a token, or {PADDING_MASKS[1]} if True means padding."
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
        warn_user(
            f"The token ids look padded with {value}, but there is no mask. The features include padding, so the "
            f"confidence of a text depends on the other texts in its batch. Let forward take {MASK!r} and let the "
            "loader provide it."
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
