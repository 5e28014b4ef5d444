"""The bank as the tensor cores read it: float32 numbers in halves, so that float16 products keep 22 bits.

Both sides are taken from the bank's mean first, which changes no distance and keeps the digits that tell features of
one direction apart. Each number is split into two halves, x = hi + lo, and hi hi' + hi lo' + lo hi' is one product of
longer rows, with float32 sums. Four more columns carry |q|^2 and |b|^2, so that the product of [-2 q, |q|^2, 1] and
[b, 1, |b|^2] is the squared distance itself, whose rounding to 11 bits still ranks near neighbours.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

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
    """Return how many columns each layer takes in the table: its copies, two squared lengths in halves, and padding.

    Examples
    --------
    >>> table_widths([10, 64], copies=3)
    [40, 200]
    """
    return [math.ceil((copies * width + 4) / ALIGNMENT) * ALIGNMENT for width in widths]


def table_part(bank: Tensor, centre: Tensor) -> Tensor:
    """Return the rows [hi, lo, hi, 1, 1, |b|^2 hi, |b|^2 lo] (float16 banks: [hi, hi, ...]) that the queries multiply.

    Examples
    --------
    >>> table_part(torch.eye(2), torch.zeros(2)).shape
    torch.Size([64, 16])
    """
    samples, width = bank.shape
    exact = bank.float() - centre
    high = exact.half()
    copies = [high, (exact - high).half(), high] if bank.dtype == torch.float32 else [high, high]
    if bank.dtype == torch.float16:
        exact = high.float()
    # One more for a zero row, which is orthogonal to everything.
    lengths = exact.square().sum(dim=1, keepdim=True) + (bank == 0).all(dim=1, keepdim=True)
    lengths_high = lengths.half()
    ones = torch.ones_like(lengths_high)
    columns = [*copies, ones, ones, lengths_high, (lengths - lengths_high).half()]
    padding = table_widths([width], len(copies))[0] - len(copies) * width - 4
    part = torch.nn.functional.pad(torch.cat(columns, dim=1), (0, padding, 0, -samples % TABLE_ROWS))
    part[samples:, len(copies) * width + 2] = FAR
    return part.contiguous()


def query_columns(widths: Sequence[int], copies: int) -> Tensor:
    """Return which of [hi ..., lo ..., |q|^2 hi ..., |q|^2 lo ..., 0, 1] each column of the queries holds.

    Examples
    --------
    >>> query_columns([2], copies=3)
    tensor([0, 1, 0, 1, 2, 3, 4, 5, 7, 7, 6, 6, 6, 6, 6, 6])
    """
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
    """Return each layer's start and width in the features, then in the table: four rows of one number a layer.

    Examples
    --------
    >>> layer_columns([10, 64], copies=3)
    tensor([[  0,  10],
            [ 10,  64],
            [  0,  40],
            [ 40, 200]])
    """
    in_table = table_widths(widths, copies)
    starts = [[sum(sizes[:layer]) for layer in range(len(sizes))] for sizes in (widths, in_table)]
    return torch.tensor([starts[0], list(widths), starts[1], in_table])


class _FullPrecisionSums:
    """Forbid float16 partial sums, which torch allows by default and which would blur near neighbours.

    The switch is the whole process's, so threads share it: the first one in turns it, the last one out turns it back.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._before: bool | tuple[bool, bool] = False

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._before = _partial_sums()
                torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if not self._inside:
                torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = self._before


def _partial_sums() -> bool | tuple[bool, bool]:
    """Return what the switch takes: in newer torch it has a second part, which a plain bool would reset."""
    matmul: Any = torch.backends.cuda.matmul
    allowed = bool(matmul.allow_fp16_reduced_precision_reduction)
    try:
        return allowed, bool(matmul.allow_fp16_reduced_precision_reduction_split_k)
    except AttributeError:
        return allowed


FULL_PRECISION_SUMS = _FullPrecisionSums()


def full_precision_sums(device: torch.device) -> AbstractContextManager[None]:
    """Return a context in which products on a device are summed in float32; only CUDA devices do otherwise.

    Examples
    --------
    >>> with full_precision_sums(torch.device("cpu")):
    ...     _ = torch.ones(2, 2).half() @ torch.ones(2, 2).half()
    """
    return FULL_PRECISION_SUMS if device.type == "cuda" else nullcontext()
