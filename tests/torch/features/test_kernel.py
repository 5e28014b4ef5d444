"""The kernel that averages feature maps: Triton's interpreter runs it in a process of its own where there is no GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")


def test_the_kernel_averages_as_torch_does(check_kernels):
    check_kernels(Path(__file__).with_name("interpreted_kernel.py"), natively=torch.cuda.is_available())
