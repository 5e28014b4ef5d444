"""The distances to the nearest centre of every layer as one Triton kernel, where CUDA and Triton are available.

With a few hundred centres, launching the operations of `torch_search` takes longer than computing them. Centres are
float16 numbers. A query is split into two of them, so that tensor cores rank the centres with 22 bits.
Triton launches on the current device, so a launch makes the device of its tensors current.
"""

# Triton parses the source of a kernel and infers its types.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

ROWS, CENTRES, DEEP = 16, 256, 64
"""The tile of one step: queries, centres and features. A larger one does not fit in the shared memory of every GPU."""


@cache
def usable(device: torch.device) -> bool:
    """Return whether the kernel runs on a device. Triton compiles it, which also needs a C compiler."""
    if triton is None or device.type != "cuda" or torch.version.hip is not None:
        return False
    try:
        layers = torch.tensor([[0], [1], [1], [0], [0]], device=device)
        one = torch.ones((1, 1), device=device)
        centre = torch.nn.functional.pad(one, (0, 15)).half()
        return nearest_distances(one, centre, 2 * one, layers).item() == 0
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


def nearest_distances(features: Tensor, bank: Tensor, offsets: Tensor, layers: Tensor) -> Tensor:
    """Return the distances to the nearest centres, of shape (n_rows, n_layers), for features of any norm.

    ``features`` has shape (n_rows, total). ``layers`` has a column per layer: its first feature and its width, its
    number of centres, and where they begin in ``bank``, with rows padded to a multiple of 16, and in ``offsets``, which
    are 1 + |c|^2.
    """
    rows, count = features.shape[0], layers.shape[1]
    distances = torch.empty((rows, count), dtype=torch.float32, device=features.device)
    if rows:
        with current_device_of(features):
            _nearest_distances[(triton.cdiv(rows, ROWS), count)](
                features, bank, offsets, layers, distances, rows, features.shape[1], ROWS, CENTRES, DEEP, num_warps=8
            )  # fmt: skip
    return distances


if triton is not None:

    @triton.jit
    def _nearest_distances(
        features, bank, offsets, layers, distances, rows, total,
        ROWS: tl.constexpr, CENTRES: tl.constexpr, DEEP: tl.constexpr,
    ):  # fmt: skip
        # The last layers are usually the widest, so they start first.
        count = tl.num_programs(1)
        layer = count - 1 - tl.program_id(1)
        start, width = tl.load(layers + layer), tl.load(layers + count + layer)
        centres = tl.load(layers + 2 * count + layer)
        in_bank = tl.multiple_of(tl.load(layers + 3 * count + layer), 16)
        in_offsets = tl.load(layers + 4 * count + layer)
        padded = tl.multiple_of((width + 15) // 16 * 16, 16)
        row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        own = features + tl.minimum(row, rows - 1).to(tl.int64)[:, None] * total + start
        # Squares of float32 numbers neither overflow nor underflow in float64.
        squares = tl.zeros((ROWS,), dtype=tl.float64)
        for depth in range(0, width, CENTRES):
            column = depth + tl.arange(0, CENTRES)
            some = tl.load(own + column[None, :], mask=(column < width)[None, :], other=0.0).to(tl.float64)
            squares += tl.sum(some * some, axis=1)
        # A feature below the smallest normal float32 is treated as zero.
        is_zero = squares < 1e-75
        scale = tl.where(is_zero, 0.0, 1.0 / tl.sqrt(squares)).to(tl.float32)
        nearest, smallest = tl.zeros((ROWS,), tl.int32), tl.full((ROWS,), float("inf"), tl.float32)
        inner = tl.arange(0, DEEP)
        for first in range(0, centres, CENTRES):
            centre = first + tl.arange(0, CENTRES)
            there = bank + in_bank + tl.minimum(centre, centres - 1)[None, :] * padded + inner[:, None]
            sums = tl.zeros((ROWS, CENTRES), dtype=tl.float32)
            for depth in range(0, padded, DEEP):
                column = depth + inner
                some = tl.load(own + column[None, :], mask=(column < width)[None, :], other=0.0).to(tl.float32)
                some = some * scale[:, None]
                high = some.to(tl.float16)
                low = (some - high.to(tl.float32)).to(tl.float16)
                others = tl.load(there + depth, mask=(column < padded)[:, None], other=0.0)
                # Tensor cores truncate what they add up, so that only a few products are left to them.
                sums += tl.dot(high, others, tl.dot(low, others))
            offset = tl.load(offsets + in_offsets + centre, mask=centre < centres, other=float("inf"))
            squared = offset[None, :] - 2 * sums
            # NaN has no order. The choice of the centre does not matter, because the difference is NaN again.
            squared = tl.where(squared == squared, squared, float("inf"))
            least, place = tl.min(squared, axis=1, return_indices=True)
            nearest = tl.where(least < smallest, (first + place).to(tl.int32), nearest)
            smallest = tl.minimum(smallest, least)
        # The difference of the vectors is accurate even if they are close.
        found = bank + in_bank + nearest.to(tl.int64)[:, None] * padded
        apart, length = tl.zeros((ROWS,), tl.float32), tl.zeros((ROWS,), tl.float32)
        for depth in range(0, width, CENTRES):
            column = depth + tl.arange(0, CENTRES)
            some = tl.load(own + column[None, :], mask=(column < width)[None, :], other=0.0).to(tl.float32)
            other = tl.load(found + column[None, :], mask=(column < width)[None, :], other=0.0).to(tl.float32)
            difference = some * scale[:, None] - other
            apart += tl.sum(difference * difference, axis=1)
            length += tl.sum(other * other, axis=1)
        # A zero vector is orthogonal to all others: 2 - 2 cos = 2, but the squared difference is 1.
        apart = tl.where(is_zero | (length < 0.5), 2.0, apart)
        tl.store(distances + row.to(tl.int64) * count + layer, tl.sqrt(apart), mask=row < rows)
