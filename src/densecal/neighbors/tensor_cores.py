"""The bank as the tensor cores read it: float32 numbers in halves, so that float16 products keep 22 bits.

Each float32 number is split into two halves, x = hi + lo, and hi hi' + hi lo' + lo hi' is one product of longer rows,
with float32 sums. Two more columns carry 1 + |b|^2, so that the product of [-2 q, 1] and [b, 1 + |b|^2] is the squared
distance itself, whose rounding to 11 bits still ranks near neighbours.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from torch.torch_version import TorchVersion

TABLE_ROWS = 64
"""The table's rows are padded to a multiple of this: aligned products, and groups that divide them evenly."""
ALIGNMENT = 8
"""Widths are padded to a multiple of this, 16 bytes of float16, as the tensor cores want them."""
WIDE_PRODUCTS = torch.__version__ >= TorchVersion("2.8") and torch.version.hip is None
"""Whether a product of float16 can be had in float32; in float16 its 11 bits still rank distances to 5e-4."""
FAR = 30000.0
"""The squared distance of a padding row, near the end of what float16 holds: never among the nearest."""


def table_widths(widths: Sequence[int], copies: int) -> list[int]:
    """Return how many columns each layer takes in the table: its copies, the offset's two halves, and padding.

    Examples
    --------
    >>> table_widths([10, 64], copies=3)
    [32, 200]
    """
    return [math.ceil((copies * width + 2) / ALIGNMENT) * ALIGNMENT for width in widths]


def offset_of(bank: Tensor) -> Tensor:
    """Return 1 + |b|^2 of each row b, which -2 q b turns into the squared distance; float16 rows are not quite unit.

    Examples
    --------
    >>> offset_of(torch.eye(2))
    tensor([2., 2.])
    """
    lengths = bank.float().square().sum(dim=1)
    return torch.where(lengths > 0, 1 + lengths, 2.0)


def table_part(bank: Tensor) -> Tensor:
    """Return the rows [hi, lo, hi, offset hi, offset lo] (float16 banks: [hi, hi, ...]) that the queries multiply.

    Examples
    --------
    >>> table_part(torch.eye(2)).shape
    torch.Size([64, 8])
    """
    samples, width = bank.shape
    exact = bank.float()
    high = exact.half()
    low = (exact - high).half()
    copies = [high, low, high] if bank.dtype == torch.float32 else [high, high]
    offset = offset_of(bank)[:, None]
    offset_high = offset.half()
    columns = [*copies, offset_high, (offset - offset_high).half()]
    padding = table_widths([width], len(copies))[0] - len(copies) * width - 2
    part = torch.nn.functional.pad(torch.cat(columns, dim=1), (0, padding, 0, -samples % TABLE_ROWS))
    part[samples:, len(copies) * width] = FAR
    return part.contiguous()


def query_columns(widths: Sequence[int], copies: int) -> Tensor:
    """Return which of [hi ..., lo ..., 0, 1] each column of the queries holds, to match the table's columns.

    Examples
    --------
    >>> query_columns([2], copies=3)
    tensor([0, 1, 0, 1, 2, 3, 5, 5])
    """
    total = sum(widths)
    zero, one = 2 * total, 2 * total + 1
    columns: list[Tensor] = []
    start = 0
    for width, padded in zip(widths, table_widths(widths, copies), strict=True):
        high = torch.arange(start, start + width)
        columns += [high, high, high + total] if copies == 3 else [high, high + total]
        columns += [torch.tensor([one, one]), torch.full((padded - copies * width - 2,), zero)]
        start += width
    return torch.cat(columns)


def layer_columns(widths: Sequence[int], copies: int) -> Tensor:
    """Return each layer's start and width in the features, then in the table: four rows of one number a layer.

    Examples
    --------
    >>> layer_columns([10, 64], copies=3)
    tensor([[  0,  10],
            [ 10,  64],
            [  0,  32],
            [ 32, 200]])
    """
    in_table = table_widths(widths, copies)
    starts = [[sum(sizes[:layer]) for layer in range(len(sizes))] for sizes in (widths, in_table)]
    return torch.tensor([starts[0], list(widths), starts[1], in_table])


@contextmanager
def full_precision_sums() -> Iterator[None]:
    """Forbid float16 partial sums, which torch allows by default and which would blur near neighbours."""
    if torch.compiler.is_compiling():
        yield
        return
    matmul = torch.backends.cuda.matmul
    before = matmul.allow_fp16_reduced_precision_reduction
    matmul.allow_fp16_reduced_precision_reduction = False
    try:
        yield
    finally:
        matmul.allow_fp16_reduced_precision_reduction = before
