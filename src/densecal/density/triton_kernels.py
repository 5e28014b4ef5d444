"""The search as four Triton kernels, used where a CUDA device and Triton are available.

On a GPU, launch overhead dominates for a few hundred rows, and ``topk`` costs more than the products it selects from.
The first kernel normalises the rows and splits them into hi and lo, the second multiplies them with the bank of each
layer, the third finds the k-th nearest neighbour, and the fourth computes its exact distance. Triton launches on the
current device, so each launch makes the device of the tensors current.
"""

# Triton parses the source of a kernel and infers its types.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from __future__ import annotations

import math
from contextlib import AbstractContextManager, nullcontext
from functools import cache

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

LARGEST_BANK = 16_384
"""With a larger bank, torch multiplies and selects as fast as these kernels."""
MOST_KEPT = 8_192
"""More candidates do not fit in the registers of one thread block."""


@cache
def usable(device: torch.device) -> bool:
    """Return whether the kernels run on a device. Triton compiles them, which also needs a C compiler."""
    if triton is None or device.type != "cuda" or torch.version.hip is not None:
        return False
    try:
        layers = torch.tensor([[0], [1], [0], [16]], device=device)
        one = torch.ones((1, 1), device=device)
        unit, halves = split_queries(one, 0 * one[0], layers, copies=3, table_width=16, widest=1)
        nearest = kth_nearest(products(halves, halves, layers), 1, samples=1)
        return distances_to(unit, unit, nearest, layers, widest=1).item() == 0
    except Exception:
        # If a compiler, headers or a recent GPU is missing, the torch operations compute the same.
        return False


def is_exporting() -> bool:
    """Return whether a program is traced for another runtime, which may lack Triton."""
    # Not torch.compiler.is_exporting(): in some releases it is also true within torch.compile.
    return torch.compiler._is_exporting_flag or torch.jit.is_tracing()  # type: ignore[attr-defined]


def current_device_of(tensor: Tensor) -> AbstractContextManager[object]:
    """Return a context that makes the tensor's device current. Compiled code does this already."""
    return nullcontext() if torch.compiler.is_compiling() else torch.cuda.device_of(tensor)


def split_queries(
    features: Tensor, centre: Tensor, layers: Tensor, *, copies: int, table_width: int, widest: int
) -> tuple[Tensor, Tensor]:
    """Return the unit vectors of each layer, and -2 times the centred unit vectors as float16 rows for the table.

    The features have shape (n_rows, total), with the layers in the columns given by `tensor_cores.layer_columns`. The
    table repeats each layer ``copies`` times in ``table_width`` columns.
    """
    rows, total = features.shape
    unit = torch.empty_like(features)
    halves = torch.empty((rows, table_width), dtype=torch.float16, device=features.device)
    if rows:
        block = triton.next_power_of_2(widest)
        with current_device_of(features):
            _split_queries[(rows, layers.shape[1])](
                features, centre, unit, halves, layers, total, table_width, copies, block
            )
    return unit, halves


def products(queries: Tensor, table: Tensor, layers: Tensor) -> Tensor:
    """Return the float32 products of queries and table per layer, of shape (n_layers, n_rows, n_samples)."""
    rows, samples, count = queries.shape[0], table.shape[0], layers.shape[1]
    found = torch.empty((count, rows, samples), dtype=torch.float32, device=queries.device)
    if rows:
        tall = 64 if rows <= 64 else 128
        with current_device_of(queries):
            _products[(triton.cdiv(rows, tall) * triton.cdiv(samples, 128), count)](
                queries, table, found, layers, rows, samples, table.shape[1], tall, 128, 64
            )
    return found


def can_select(samples: int, k: int) -> bool:
    """Return whether ``kth_nearest`` supports this k and bank size, and is faster than torch."""
    return samples <= LARGEST_BANK and _sizes(samples, k)[1] <= MOST_KEPT


def _sizes(samples: int, k: int) -> tuple[int, int]:
    """Return the number of groups per row and the maximum number of candidates, which are balanced."""
    groups = max(128, triton.next_power_of_2(math.isqrt(k * samples)))
    return groups, max(128, triton.next_power_of_2(k * triton.cdiv(samples, groups)))


def kth_nearest(squared: Tensor, k: int, samples: int) -> Tensor:
    """Return the column of the k-th smallest value, compared to 14 bits, of shape (n_layers, n_rows).

    Squared distances are negative only by rounding. Columns from ``samples`` on are padding.
    """
    layers, rows, width = squared.shape
    groups, kept = _sizes(samples, k)
    nearest = torch.empty((layers, rows), dtype=torch.int64, device=squared.device)
    candidates = torch.empty((layers, rows, 2, kept), dtype=torch.int32, device=squared.device)
    if rows:
        with current_device_of(squared):
            _kth_nearest[(rows, layers)](
                squared, nearest, candidates, k, samples, width, groups, kept, num_warps=2 if groups <= 1024 else 4
            )
    return nearest


def distances_to(unit: Tensor, bank: Tensor, nearest: Tensor, layers: Tensor, *, widest: int) -> Tensor:
    """Return the distance to the selected bank row of each layer, of shape (n_rows, n_layers)."""
    count, rows = nearest.shape
    distances = torch.empty((rows, count), dtype=torch.float32, device=unit.device)
    if rows:
        block = triton.next_power_of_2(widest)
        with current_device_of(unit):
            _distances_to[(rows, count)](unit, bank, nearest, distances, layers, unit.shape[1], block)
    return distances


if triton is not None:

    @triton.jit
    def _split_queries(
        features, centre, unit, halves, layers, total, table_total, COPIES: tl.constexpr, BLOCK: tl.constexpr
    ):
        row, layer, count = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(1)
        start, width = tl.load(layers + layer), tl.load(layers + count + layer)
        table_start, table_width = tl.load(layers + 2 * count + layer), tl.load(layers + 3 * count + layer)
        column = tl.arange(0, BLOCK)
        inside = column < width
        values = tl.load(features + row * total + start + column, mask=inside, other=0.0)
        # Scaling by the largest entry first prevents overflow and underflow of the squares.
        largest = tl.max(tl.abs(values), axis=0)
        values = values / tl.where(largest > 0, largest, 1.0)
        length = tl.sqrt(tl.sum(values * values, axis=0))
        values = values / tl.where(length == 0, 1.0, length)
        tl.store(unit + row * total + start + column, values, mask=inside)
        centred = values - tl.load(centre + start + column, mask=inside, other=0.0)
        scaled = -2 * centred
        high = scaled.to(tl.float16)
        low = (scaled - high.to(tl.float32)).to(tl.float16)
        own = halves + row * table_total + table_start
        tl.store(own + column, high, mask=inside)
        if COPIES == 3:
            tl.store(own + width + column, high, mask=inside)
        tl.store(own + (COPIES - 1) * width + column, low, mask=inside)
        squared = tl.sum(tl.where(inside, centred * centred, 0.0), axis=0)
        squared_high = squared.to(tl.float16)
        squared_low = (squared - squared_high.to(tl.float32)).to(tl.float16)
        tail = tl.arange(0, 32)
        constant = tl.where(tail == 0, squared_high, tl.where(tail == 1, squared_low, tl.where(tail < 4, 1.0, 0.0)))
        tl.store(own + COPIES * width + tail, constant.to(tl.float16), mask=tail < table_width - COPIES * width)

    @triton.jit
    def _products(
        queries, table, found, layers, rows, samples, total, TALL: tl.constexpr, WIDE: tl.constexpr, DEEP: tl.constexpr
    ):
        # The last layers are usually the widest, so they start first.
        count = tl.num_programs(1)
        layer = count - 1 - tl.program_id(1)
        start = tl.multiple_of(tl.load(layers + 2 * count + layer), 16)
        width = tl.multiple_of(tl.load(layers + 3 * count + layer), 16)
        down = tl.cdiv(rows, TALL)
        row = tl.program_id(0) % down * TALL + tl.arange(0, TALL)
        sample = tl.program_id(0) // down * WIDE + tl.arange(0, WIDE)
        inner = tl.arange(0, DEEP)
        left = queries + tl.minimum(row, rows - 1).to(tl.int64)[:, None] * total + start + inner[None, :]
        right = table + tl.minimum(sample, samples - 1).to(tl.int64)[None, :] * total + start + inner[:, None]
        sums = tl.zeros((TALL, WIDE), dtype=tl.float32)
        for depth in range(0, width, DEEP):
            inside = inner < width - depth
            some = tl.load(left + depth, mask=inside[None, :], other=0.0)
            others = tl.load(right + depth, mask=inside[:, None], other=0.0)
            sums = tl.dot(some, others, sums)
        place = (layer.to(tl.int64) * rows + row)[:, None] * samples + sample[None, :]
        tl.store(found + place, sums, mask=(row < rows)[:, None] & (sample < samples)[None, :])

    @triton.jit
    def _keys(values, column, samples):
        """Return the bits of non-negative floats as integers, which have the same order."""
        loaded = tl.load(values + column, mask=column < samples, other=float("inf")).to(tl.float32)
        return tl.where(loaded > 0, loaded, 0.0).to(tl.int32, bitcast=True)

    @triton.jit
    def _floor_of_kth(keys, k):
        """Return the k-th smallest key without its last 9 bits."""
        floor = tl.zeros((), dtype=tl.int32)
        for step in range(22):
            raised = floor + (1 << (30 - step))
            floor = tl.where(tl.sum((keys < raised).to(tl.int32), axis=0) < k, raised, floor)
        return floor

    @triton.jit
    def _kth_nearest(squared, nearest, candidates, k, samples, width, GROUPS: tl.constexpr, KEPT: tl.constexpr):
        row, layer = tl.program_id(0).to(tl.int64), tl.program_id(1)
        place = layer * tl.num_programs(0) + row
        values = squared + place * width
        kept_keys = candidates + place * 2 * KEPT
        kept_columns = kept_keys + KEPT
        group = tl.arange(0, GROUPS)
        smallest = tl.full((GROUPS,), 0x7F800000, dtype=tl.int32)
        for start in range(0, samples, GROUPS):
            smallest = tl.minimum(smallest, _keys(values, start + group, samples))
        # Fewer than k groups have values below the floor of the k-th smallest minimum, so there are few candidates.
        # If there are fewer than k, the k-th neighbour is at the floor.
        floor = _floor_of_kth(smallest, k)
        count = tl.zeros((), dtype=tl.int32)
        at_floor = tl.full((GROUPS,), 0x7FFFFFFF, dtype=tl.int32)
        for start in range(0, samples, GROUPS):
            column = start + group
            keys = _keys(values, column, samples)
            is_below = (keys < floor).to(tl.int32)
            position = count + tl.cumsum(is_below, axis=0) - 1
            tl.store(kept_keys + position, keys, mask=keys < floor)
            tl.store(kept_columns + position, column, mask=keys < floor)
            count += tl.sum(is_below, axis=0)
            at_floor = tl.minimum(at_floor, tl.where((keys >> 9) == (floor >> 9), column, 0x7FFFFFFF))
        tl.debug_barrier()
        slot = tl.arange(0, KEPT)
        keys = tl.load(kept_keys + slot, mask=slot < count, other=0x7F800000)
        chosen = tl.argmin(tl.where(keys >= _floor_of_kth(keys, k), keys, 0x7FFFFFFF), axis=0)
        column = tl.load(kept_columns + chosen, mask=count >= k, other=0)
        tl.store(nearest + place, tl.where(count >= k, column, tl.min(at_floor, axis=0)).to(tl.int64))

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
        # A zero vector is orthogonal to all others: 2 - 2 cos = 2, but the squared difference is 1.
        is_zero = (tl.sum(query * query, axis=0) < 0.5) | (tl.sum(found * found, axis=0) < 0.5)
        tl.store(distances + row * count + layer, tl.sqrt(tl.where(is_zero, 2.0, squared)))
