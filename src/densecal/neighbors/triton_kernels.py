"""The small steps of the search as three Triton kernels, where a CUDA device and Triton are there.

On a GPU a step on a few hundred rows costs by the call, not by the number, and ``topk`` costs more than the products
it selects from. So the rows are normalised and split into halves in one kernel, the k-th nearest of a bank of up to
16,384 is found in registers in a second, and its exact distance is taken in a third. Triton launches on the current
device, so each launch makes the tensors' own device current.
"""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

LARGEST_BANK = 16_384
"""A row of more squared distances than this does not fit the registers of one block of threads."""


@cache
def usable(device: torch.device) -> bool:
    """Return whether the kernels run on a device: Triton compiles them there, which takes a C compiler too."""
    if triton is None or device.type != "cuda" or torch.version.hip is not None:
        return False
    try:
        layers = torch.tensor([[0], [1], [0], [8]], device=device)
        unit, halves = split_queries(torch.ones((1, 1), device=device), layers, copies=3, table_width=8, widest=1)
        nearest = kth_nearest((halves @ halves.T)[None], 1, samples=1)
        return distances_to(unit, unit, nearest, layers, widest=1).item() == 0
    except Exception:
        # Whatever is missing there (a compiler, headers, a new enough GPU), the torch operations do the same work.
        return False


def split_queries(
    features: Tensor, layers: Tensor, *, copies: int, table_width: int, widest: int
) -> tuple[Tensor, Tensor]:
    """Return each layer's unit vectors, and -2 times them in float16 halves as the table's rows want them.

    Parameters
    ----------
    features : Tensor of shape (rows, total), float32
        Each layer's features side by side.
    layers : Tensor of shape (4, layers)
        Where each layer lies, see :func:`densecal.neighbors.tensor_cores.layer_columns`.
    copies, table_width, widest : int
        How often the table repeats a layer, its width, and that of the widest layer.
    """
    rows, total = features.shape
    unit = torch.empty_like(features)
    halves = torch.empty((rows, table_width), dtype=torch.float16, device=features.device)
    if rows:
        block = triton.next_power_of_2(widest)
        with torch.cuda.device_of(features):
            _split_queries[(rows, layers.shape[1])](features, unit, halves, layers, total, table_width, copies, block)
    return unit, halves


def kth_nearest(squared: Tensor, k: int, samples: int) -> Tensor:
    """Return which of the first ``samples`` columns is the k-th smallest, to 14 bits, of shape (layers, rows).

    Parameters
    ----------
    squared : Tensor of shape (layers, rows, columns)
        Squared distances, of which none is negative but by rounding.
    k, samples : int
        Which neighbour, of how many; what lies beyond them is padding.
    """
    layers, rows, width = squared.shape
    nearest = torch.empty((layers, rows), dtype=torch.int64, device=squared.device)
    if rows:
        block = max(64, triton.next_power_of_2(samples))
        warps = max(1, min(16, block // 1024))
        with torch.cuda.device_of(squared):
            _kth_nearest[(rows, layers)](squared, nearest, k, samples, width, block, num_warps=warps)
    return nearest


def distances_to(unit: Tensor, bank: Tensor, nearest: Tensor, layers: Tensor, *, widest: int) -> Tensor:
    """Return the distance to one chosen bank row in each layer, of shape (rows, layers).

    Parameters
    ----------
    unit, bank : Tensor of shape (rows, total) and (samples, total)
        Each layer's unit vectors side by side.
    nearest : Tensor of shape (layers, rows)
        The chosen row of the bank.
    layers, widest :
        As in :func:`split_queries`.
    """
    count, rows = nearest.shape
    distances = torch.empty((rows, count), dtype=torch.float32, device=unit.device)
    if rows:
        block = triton.next_power_of_2(widest)
        with torch.cuda.device_of(unit):
            _distances_to[(rows, count)](unit, bank, nearest, distances, layers, unit.shape[1], block)
    return distances


if triton is not None:

    @triton.jit
    def _split_queries(features, unit, halves, layers, total, table_total, COPIES: tl.constexpr, BLOCK: tl.constexpr):
        row, layer, count = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
        start, width = tl.load(layers + layer), tl.load(layers + count + layer)
        table_start, table_width = tl.load(layers + 2 * count + layer), tl.load(layers + 3 * count + layer)
        column = tl.arange(0, BLOCK)
        inside = column < width
        values = tl.load(features + row * total + start + column, mask=inside, other=0.0)
        # Divided by the largest first, so that no square leaves float32's range.
        largest = tl.max(tl.abs(values), axis=0)
        values = values / tl.where(largest > 0, largest, 1.0)
        length = tl.sqrt(tl.sum(values * values, axis=0))
        values = values / tl.where(length == 0, 1.0, length)
        tl.store(unit + row * total + start + column, values, mask=inside)
        scaled = -2 * values
        high = scaled.to(tl.float16)
        low = (scaled - high.to(tl.float32)).to(tl.float16)
        own = halves + row * table_total + table_start
        tl.store(own + column, high, mask=inside)
        if COPIES == 3:
            tl.store(own + width + column, high, mask=inside)
        tl.store(own + (COPIES - 1) * width + column, low, mask=inside)
        tail = tl.arange(0, 16)
        constant = tl.where(tail < 2, 1.0, 0.0).to(tl.float16)
        tl.store(own + COPIES * width + tail, constant, mask=tail < table_width - COPIES * width)

    @triton.jit
    def _kth_nearest(squared, nearest, k, samples, width, BLOCK: tl.constexpr):
        row, layer = tl.program_id(0).to(tl.int64), tl.program_id(1)
        place = layer * tl.num_programs(0) + row
        column = tl.arange(0, BLOCK)
        values = tl.load(squared + place * width + column, mask=column < samples, other=float("inf")).to(tl.float32)
        # The bits of a float that is not negative, read as a whole number, are in the order of the floats.
        keys = tl.where(values > 0, values, 0.0).to(tl.int32, bitcast=True)
        floor = tl.zeros((), dtype=tl.int32)
        for step in range(22):
            raised = floor + (1 << (30 - step))
            floor = tl.where(tl.sum((keys < raised).to(tl.int32), axis=0) < k, raised, floor)
        found = tl.argmin(tl.where(keys >= floor, keys, 0x7FFFFFFF), axis=0)
        tl.store(nearest + place, found.to(tl.int64))

    @triton.jit
    def _distances_to(unit, bank, nearest, distances, layers, total, BLOCK: tl.constexpr):
        row, layer, count = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
        start, width = tl.load(layers + layer), tl.load(layers + count + layer)
        neighbor = tl.load(nearest + layer * tl.num_programs(0) + row)
        column = tl.arange(0, BLOCK)
        inside = column < width
        query = tl.load(unit + row * total + start + column, mask=inside, other=0.0)
        found = tl.load(bank + neighbor * total + start + column, mask=inside, other=0.0).to(tl.float32)
        difference = query - found
        squared = tl.sum(difference * difference, axis=0)
        # A zero vector is orthogonal to all: 2 - 2 cos = 2, where the difference alone would say 1.
        is_zero = (tl.sum(query * query, axis=0) < 0.5) | (tl.sum(found * found, axis=0) < 0.5)
        tl.store(distances + row * count + layer, tl.sqrt(tl.where(is_zero, 2.0, squared)))
