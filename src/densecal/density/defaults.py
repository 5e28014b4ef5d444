"""Every default of the density: which neighbour is measured, and how many training samples a bank keeps."""

from __future__ import annotations

from typing import Literal

import numpy as np

DEFAULT_K = 50
"""The paper's choice for CIFAR-10, of `FeatureBank`; whoever knows the number of classes asks `choose_k`."""
DEFAULT_MEMORY_BUDGET = 256 << 20
"""Bytes that a search may use beyond the features themselves."""
BankSize = int | float | Literal["auto"] | None
"""A number of samples, a fraction of them (a float), "auto", or None for all."""

_PAPER_SAMPLES = 45_000
_WHOLE_SET = 50_000
_SMALLEST_SHARE = 12_500
_FEW_CLASSES = 50
_SMALLEST_K = 10


def choose_k(n_samples: int, n_classes: int) -> int:
    """Return which neighbour to measure, for a bank of this many samples of this many classes.

    The paper takes the 50th of 45,000 (10 classes), the 200th of 45,000 (100 classes) and the 10th of 12,811 (1,000
    classes). Between these: a smaller bank lowers k in proportion, k stays within four fifths of a class's samples, so
    that the neighbours can be of one class, and it is at least 10.
    """
    largest = 50 if n_classes < _FEW_CLASSES else 200
    in_proportion = largest * min(n_samples, _PAPER_SAMPLES) / _PAPER_SAMPLES
    k = max(_SMALLEST_K, int(min(in_proportion, 0.8 * n_samples / n_classes)))
    return min(k, n_samples)


def choose_bank_size(available: int, bank_size: BankSize) -> int:
    """Return how many training samples a bank keeps; "auto" keeps all up to 50,000, else 1 %, at least 12,500."""
    if bank_size is None:
        return available
    if bank_size == "auto":
        return available if available <= _WHOLE_SET else max(_SMALLEST_SHARE, available // 100)
    if isinstance(bank_size, bool) or not isinstance(bank_size, (int, float, np.integer)):
        raise TypeError(
            f"bank_size must be 'auto', a number of samples, a fraction or None for all, got {bank_size!r}."
        )
    if isinstance(bank_size, float) and not 0 < bank_size <= 1:
        raise ValueError(f"bank_size as a fraction must lie in (0, 1], got {bank_size}.")
    size = max(1, round(available * bank_size)) if isinstance(bank_size, float) else int(bank_size)
    if not 1 <= size <= available:
        raise ValueError(f"bank_size = {bank_size!r} asks for {size} of {available} training samples.")
    return size
