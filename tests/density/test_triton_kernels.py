"""The Triton kernel of the search: Triton's interpreter runs it in a process of its own where there is no GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")


def test_the_kernel_answers_as_the_torch_operations_do(check_kernels):
    check_kernels(Path(__file__).with_name("interpreted_kernels.py"), natively=torch.cuda.is_available())
