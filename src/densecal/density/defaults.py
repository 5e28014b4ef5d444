"""The defaults of a bank: the number of centres or training samples, and k."""

from __future__ import annotations

from typing import Literal

import numpy as np

DEFAULT_MEMORY_BUDGET = 256 << 20
"""Bytes that a search may use in addition to the features."""
BankSize = int | float | Literal["auto"] | None
"""A number of samples (int), a fraction of them (float), "auto", or None for all."""
Centres = int | Literal["auto"]
"""A number of centres per layer, or "auto"."""

MAX_CENTRES = 500
"""What "auto" uses for enough training samples. ``reproduction/studies/centres.py`` compares other numbers."""
SAMPLES_PER_CENTRE = 64
"""k-means uses a random sample of this many training samples per centre: more do not improve the centres."""
_FEWEST_SAMPLES_PER_CENTRE = 10
_PAPER_SAMPLES = 45_000
_WHOLE_SET = 50_000
_SMALLEST_SHARE = 12_500
_FEW_CLASSES = 50
_SMALLEST_K = 10


def choose_centres(n_samples: int, centres: Centres) -> int:
    """Return the number of centres: "auto" is 500, or a tenth of fewer than 5,000 samples, but at least 10."""
    if centres == "auto":
        return min(MAX_CENTRES, max(_FEWEST_SAMPLES_PER_CENTRE, n_samples // _FEWEST_SAMPLES_PER_CENTRE), n_samples)
    if isinstance(centres, bool) or not isinstance(centres, (int, np.integer)) or centres < 1:
        raise ValueError(f"centres must be 'auto' or an integer of at least 1, got {centres!r}.")
    if centres > n_samples:
        raise ValueError(f"centres must be at most {n_samples}, the number of training samples, got {centres}.")
    return int(centres)


def sample_size(centres: Centres) -> int:
    """Return how many training samples k-means uses for a number of centres."""
    return SAMPLES_PER_CENTRE * (MAX_CENTRES if centres == "auto" else max(1, int(centres)))


def choose_k(n_samples: int, n_classes: int) -> int:
    """Return a default k for a bank of ``n_samples`` samples of ``n_classes`` classes.

    The paper uses the 50th of 45,000 (10 classes), the 200th of 45,000 (100 classes) and the 10th of 12,811 (1,000
    classes). In between, k is proportional to the size of the bank, at most 80 % of the samples per class, so that all
    neighbours can belong to one class, and at least 10.
    """
    largest = 50 if n_classes < _FEW_CLASSES else 200
    in_proportion = largest * min(n_samples, _PAPER_SAMPLES) / _PAPER_SAMPLES
    k = max(_SMALLEST_K, int(min(in_proportion, 0.8 * n_samples / n_classes)))
    return min(k, n_samples)


def choose_bank_size(available: int, bank_size: BankSize) -> int:
    """Return how many training samples a bank keeps. "auto" is all up to 50,000, else 1 % but at least 12,500."""
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
        raise ValueError(f"bank_size must lie in 1 ... {available}, the number of training samples, got {bank_size!r}.")
    return size
