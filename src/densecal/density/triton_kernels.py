"""The distances to the nearest centre of every layer as one Triton kernel, where CUDA and Triton are available.

With a few hundred centres, launching the operations of `torch_centres` takes longer than computing them. Centres are
float16 numbers. A query is split into two of them, so that tensor cores multiply with 22 bits and float32 sums.
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

ROWS, CENTRES, DEEP = 16, 128, 64
"""The tile of one step: queries, centres and features."""


@cache
def usable(device: torch.device) -> bool:
    """Return whether the kernel runs on a device. Triton compiles it, which also needs a C compiler."""
    if triton is None or device.type != "cuda" or torch.version.hip is not None:
        return False
    try:
        layers = torch.tensor([[0], [1], [1], [0], [0]], device=device)
        one = torch.ones((1, 1), device=device)
        centre = torch.nn.functional.pad(one, (0, 15)).half()
        return nearest_distances(one, centre, one, layers).item() == 0
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


def nearest_distances(features: Tensor, bank: Tensor, lengths: Tensor, layers: Tensor) -> Tensor:
    """Return the distances to the nearest centres, of shape (n_rows, n_layers), for features of any norm.

    ``features`` has shape (n_rows, total). ``layers`` has a column per layer: its first feature and its width, its
    number of centres, and where they begin in ``bank`` (rows padded to a multiple of 16) and in ``lengths`` (|c|^2).
    """
    rows, count = features.shape[0], layers.shape[1]
    distances = torch.empty((rows, count), dtype=torch.float32, device=features.device)
    if rows:
        with current_device_of(features):
            _nearest_distances[(triton.cdiv(rows, ROWS), count)](
                features, bank, lengths, layers, distances, rows, features.shape[1], ROWS, CENTRES, DEEP
            )
    return distances


if triton is not None:

    @triton.jit
    def _nearest_distances(
        features, bank, lengths, layers, distances, rows, total,
        ROWS: tl.constexpr, CENTRES: tl.constexpr, DEEP: tl.constexpr,
    ):  # fmt: skip
        # The last layers are usually the widest, so they start first.
        count = tl.num_programs(1)
        layer = count - 1 - tl.program_id(1)
        start, width = tl.load(layers + layer), tl.load(layers + count + layer)
        centres = tl.load(layers + 2 * count + layer)
        in_bank = tl.multiple_of(tl.load(layers + 3 * count + layer), 16)
        in_lengths = tl.load(layers + 4 * count + layer)
        padded = tl.multiple_of((width + 15) // 16 * 16, 16)
        row, inner = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, DEEP)
        own = features + tl.minimum(row, rows - 1).to(tl.int64)[:, None] * total + start + inner[None, :]
        # Squares of float32 numbers neither overflow nor underflow in float64.
        squares = tl.zeros((ROWS,), dtype=tl.float64)
        for depth in range(0, width, DEEP):
            some = tl.load(own + depth, mask=(inner < width - depth)[None, :], other=0.0).to(tl.float64)
            squares += tl.sum(some * some, axis=1)
        # A feature below the smallest normal float32 is treated as zero.
        scale = tl.where(squares < 1e-75, 0.0, 1.0 / tl.sqrt(squares)).to(tl.float32)
        nearest = tl.full((ROWS,), float("inf"), dtype=tl.float32)
        for first in range(0, centres, CENTRES):
            centre = first + tl.arange(0, CENTRES)
            there = bank + in_bank + tl.minimum(centre, centres - 1)[None, :] * padded + inner[:, None]
            sums = tl.zeros((ROWS, CENTRES), dtype=tl.float32)
            for depth in range(0, padded, DEEP):
                some = tl.load(own + depth, mask=(inner < width - depth)[None, :], other=0.0).to(tl.float32)
                some = some * scale[:, None]
                high = some.to(tl.float16)
                low = (some - high.to(tl.float32)).to(tl.float16)
                others = tl.load(there + depth, mask=(inner < padded - depth)[:, None], other=0.0)
                sums = tl.dot(low, others, tl.dot(high, others, sums))
            squared = tl.load(lengths + in_lengths + centre, mask=centre < centres, other=float("inf"))
            nearest = tl.minimum(nearest, tl.min(squared[None, :] - 2 * sums, axis=1))
        # The minimum ignores NaN, so that features that are not finite need a NaN of their own.
        found = tl.where(squares < float("inf"), tl.sqrt(tl.maximum(1 + nearest, 0.0)), float("nan"))
        tl.store(distances + row.to(tl.int64) * count + layer, found, mask=row < rows)
