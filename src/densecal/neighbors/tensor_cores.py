"""The bank as the tensor cores read it: rows of float16 whose products are squared distances, summed in float32.

Each float32 number of the bank is split into two halves, b = hi + lo, and the row is [-2 hi, -2 lo, 1 + |b|^2], the
last in two halves as well. Its product with [q, q, 1, 1] is 1 + |b|^2 - 2 q b, the squared distance from a unit
vector q.

The query is rounded to float16. That moves it by at most 2^-11, and so every distance by at most 2^-11; the neighbour
that ranks k-th then, measured from the query as it is, is off by at most twice that, 9.8e-4. A float16 bank has moved
by 2^-11 itself, so there the row is [-2 b, -2 b, 1 + |b|^2], for the two halves of the query.
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


def table_widths(widths: Sequence[int]) -> list[int]:
    """Return how many columns each layer takes in the table: two halves, the offset's two halves, and padding.

    Examples
    --------
    >>> table_widths([10, 64])
    [24, 136]
    """
    return [math.ceil((2 * width + 2) / ALIGNMENT) * ALIGNMENT for width in widths]


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
    """Return one layer's part of the table, its rows padded with ones that are far from everything.

    Examples
    --------
    >>> table_part(torch.eye(2)).shape
    torch.Size([64, 8])
    """
    samples, width = bank.shape
    exact = bank.float()
    high = exact.half()
    low = (exact - high).half() if bank.dtype == torch.float32 else high
    offset = offset_of(bank)[:, None]
    offset_high = offset.half()
    columns = [-2 * high, -2 * low, offset_high, (offset - offset_high).half()]
    padding = table_widths([width])[0] - 2 * width - 2
    part = torch.nn.functional.pad(torch.cat(columns, dim=1), (0, padding, 0, -samples % TABLE_ROWS))
    part[samples:, 2 * width] = FAR
    return part.contiguous()


def query_columns(widths: Sequence[int], *, with_low: bool) -> Tensor:
    """Return which column of the padded queries meets each column of the table.

    The queries are rows of (layers + 1) blocks as wide as the widest layer, the last beginning with the constant one;
    with ``with_low`` the same again follows for what rounding took away.

    Examples
    --------
    >>> query_columns([2], with_low=False)
    tensor([0, 1, 0, 1, 2, 2, 2, 2])
    """
    widest = max(widths)
    one, low = len(widths) * widest, (len(widths) + 1) * widest
    columns: list[Tensor] = []
    for layer, (width, padded) in enumerate(zip(widths, table_widths(widths), strict=True)):
        high = layer * widest + torch.arange(width)
        # The table is zero in the padding, so what meets it does not matter.
        columns += [high, high + low if with_low else high, torch.full((padded - 2 * width,), one)]
    return torch.cat(columns)


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
