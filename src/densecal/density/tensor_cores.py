"""Layout of the bank for tensor cores: each float32 number is two float16 numbers, so products keep 22 bits.

The mean of the bank is subtracted from both sides first. This changes no distance and keeps the digits that distinguish
features of similar directions. Each number is split as x = hi + lo, and hi hi' + hi lo' + lo hi' is one product of
longer rows, accumulated in float32. Four more columns hold |q|^2 and |b|^2, so that the product of
[-2 q, |q|^2, 1] and [b, 1, |b|^2] is the squared distance.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

TABLE_ROWS = 64
"""The number of table rows is padded to a multiple of this, for aligned products and equal groups."""
ALIGNMENT = 16
"""Widths are padded to a multiple of this, for aligned tensor-core loads."""
FAR = 30000.0
"""The squared distance of a padding row, near the float16 maximum, so that it is never among the nearest."""


def table_widths(widths: Sequence[int], copies: int) -> list[int]:
    """Return the number of table columns per layer: its copies, two squared norms as hi and lo, and padding."""
    return [math.ceil((copies * width + 4) / ALIGNMENT) * ALIGNMENT for width in widths]


def table_part(bank: Tensor, centre: Tensor) -> Tensor:
    """Return the rows [hi, lo, hi, 1, 1, |b|^2 hi, |b|^2 lo] (float16: [hi, hi, ...]) that the queries multiply."""
    samples, width = bank.shape
    exact = bank.float() - centre
    high = exact.half()
    copies = [high, (exact - high).half(), high] if bank.dtype == torch.float32 else [high, high]
    if bank.dtype == torch.float16:
        exact = high.float()
    # Add one for a zero row, which is orthogonal to all others.
    lengths = exact.square().sum(dim=1, keepdim=True) + (bank == 0).all(dim=1, keepdim=True)
    lengths_high = lengths.half()
    ones = torch.ones_like(lengths_high)
    columns = [*copies, ones, ones, lengths_high, (lengths - lengths_high).half()]
    padding = table_widths([width], len(copies))[0] - len(copies) * width - 4
    part = torch.nn.functional.pad(torch.cat(columns, dim=1), (0, padding, 0, -samples % TABLE_ROWS))
    part[samples:, len(copies) * width + 2] = FAR
    return part.contiguous()


def query_columns(widths: Sequence[int], copies: int) -> Tensor:
    """Return which of [hi ..., lo ..., |q|^2 hi ..., |q|^2 lo ..., 0, 1] each column of the queries holds."""
    total, layers = sum(widths), len(widths)
    zero = 2 * total + 2 * layers
    one = zero + 1
    columns: list[Tensor] = []
    start = 0
    for layer, (width, padded) in enumerate(zip(widths, table_widths(widths, copies), strict=True)):
        high = torch.arange(start, start + width)
        columns += [high, high, high + total] if copies == 3 else [high, high + total]
        columns += [torch.tensor([2 * total + layer, 2 * total + layers + layer, one, one])]
        columns += [torch.full((padded - copies * width - 4,), zero)]
        start += width
    return torch.cat(columns)


def layer_columns(widths: Sequence[int], copies: int) -> Tensor:
    """Return four rows with one number per layer: start and width in the features, start and width in the table."""
    in_table = table_widths(widths, copies)
    starts = [[sum(sizes[:layer]) for layer in range(len(sizes))] for sizes in (widths, in_table)]
    return torch.tensor([starts[0], list(widths), starts[1], in_table])
