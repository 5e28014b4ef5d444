"""The Triton kernels of the search, without a GPU: Triton's interpreter runs them in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", minversion="3.7", reason="older interpreters fail by a newer NumPy")


def test_the_interpreted_kernels_find_the_sorted_neighbours():
    tests = Path(__file__).with_name("interpreted_kernels.py")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tests)],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
