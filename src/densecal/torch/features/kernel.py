"""The average of large feature maps as a Triton kernel.

torch's mean is slow over few positions: 129 us for the five maps of a ResNet18 with 512 images of 32 pixels on an H200,
where this kernel takes 56 us. Its launch takes 17 us longer, so it serves only maps that keep a GPU busy for as long.
"""

# Triton compiles the source of a kernel and infers its types.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from __future__ import annotations

import torch
from torch import Tensor

from densecal.density.triton_kernels import current_device_of, is_exporting, usable

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

FEWEST_VALUES, FEWEST_ROWS = 1 << 22, 1 << 15
"""The smallest maps that are worth a launch; a row is one channel of one sample."""
VALUES = 4096
"""Values per thread block."""


def serves(output: Tensor) -> bool:
    """Return whether the kernel averages this output, with channels in axis 1 on a GPU, faster than torch does."""
    return (
        not torch.compiler.is_compiling()  # first: shapes may be symbolic
        and output.ndim > 2
        and output.numel() >= FEWEST_VALUES
        and output.shape[0] * output.shape[1] >= FEWEST_ROWS
        and output.is_floating_point()
        and output.is_contiguous()
        and not is_exporting()
        and usable(output.device)
    )


def mean(output: Tensor) -> Tensor:
    """Return float32 averages over all axes from the third on."""
    pooled = torch.empty(output.shape[:2], dtype=torch.float32, device=output.device)
    rows = pooled.numel()
    positions = output.numel() // rows
    block = min(1024, triton.next_power_of_2(positions))
    n_rows = VALUES // block
    with current_device_of(output):
        _mean[(triton.cdiv(rows, n_rows),)](output, pooled, rows, positions, n_rows, block, num_warps=4)
    return pooled


if triton is not None:

    @triton.jit
    def _mean(values, pooled, rows, positions, ROWS: tl.constexpr, BLOCK: tl.constexpr):
        row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
        own = values + row.to(tl.int64)[:, None] * positions
        total = tl.zeros((ROWS,), tl.float32)
        for first in range(0, positions, BLOCK):
            place = first + tl.arange(0, BLOCK)
            inside = (row < rows)[:, None] & (place < positions)[None, :]
            total += tl.sum(tl.load(own + place[None, :], mask=inside, other=0.0).to(tl.float32), axis=1)
        tl.store(pooled + row, total / positions, mask=row < rows)
