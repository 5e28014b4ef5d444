"""The Triton kernel that averages feature maps against torch's mean; test_kernel.py runs this file.

Without a GPU it needs TRITON_INTERPRET=1 before Triton is imported, so it runs in a process of its own.
"""

from __future__ import annotations

import os

import pytest
import torch

from densecal.torch.features import kernel
from densecal.torch.features.layout import Layout

DEVICE = torch.device("cpu" if os.environ.get("TRITON_INTERPRET") else "cuda")


def spread(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(DEVICE)


@pytest.mark.parametrize(
    "shape", [(3, 5, 4, 4), (2, 7, 7, 7), (1, 3, 33, 41), (4, 6, 50), (2, 3, 4, 5, 6), (300, 2, 1)]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_maps_of_any_shape_and_precision_are_averaged_in_float32(shape, dtype):
    maps = spread(*shape).to(dtype)
    found = kernel.mean(maps)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, maps.flatten(2).float().mean(dim=2), atol=1e-6, rtol=0)


def test_what_is_not_finite_spoils_its_own_channel_only():
    maps = spread(2, 3, 4, 4)
    maps[1, 2, 0, 3] = float("nan")
    assert kernel.mean(maps).isnan().nonzero().tolist() == [[1, 2]]


@pytest.mark.skipif(DEVICE.type != "cuda", reason="needs a GPU")
def test_large_maps_on_a_gpu_are_averaged_by_the_kernel_and_small_or_strided_ones_by_torch():
    large = spread(64, 512, 16, 16).bfloat16()
    assert kernel.serves(large)
    assert not kernel.serves(large[:8])
    assert not kernel.serves(large.contiguous(memory_format=torch.channels_last))
    for maps in (large, large.contiguous(memory_format=torch.channels_last)):
        torch.testing.assert_close(Layout("first").pool(maps), large.float().mean(dim=(2, 3)), atol=1e-6, rtol=0)
