"""The head's Triton kernel: Triton's interpreter runs it in a process of its own where there is no GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
has_gpu = torch.cuda.is_available()
pytest.importorskip("triton", minversion=None if has_gpu else "3.7", reason="older interpreters fail by a newer NumPy")


def test_the_kernel_answers_as_the_torch_modules_do():
    tests = Path(__file__).with_name("interpreted_tail.py")
    interpreted = {} if has_gpu else {"TRITON_INTERPRET": "1"}
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tests)],
        env={**os.environ, **interpreted},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
