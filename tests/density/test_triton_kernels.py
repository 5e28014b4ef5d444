"""The Triton kernels of the search, without a GPU: Triton's interpreter runs them in a process of its own."""

from __future__ import annotations

from pathlib import Path


def test_the_interpreted_kernels_find_the_sorted_neighbours(check_kernels):
    check_kernels(Path(__file__).with_name("interpreted_kernels.py"))
