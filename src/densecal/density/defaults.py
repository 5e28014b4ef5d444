"""What densecal chooses by itself: how many training samples a bank keeps, and which neighbour it measures."""

from __future__ import annotations

from typing import Literal

PAPER_SAMPLES = 45_000
"""CIFAR's training images in the paper, all of them in the bank."""
WHOLE_SET = 50_000
"""Up to so many training samples the bank takes them all; of more, 1 %, as the paper does for ImageNet."""
SMALLEST_SHARE = 12_500
FEW_CLASSES = 50
SMALLEST_K = 10


def choose_k(samples: int, classes: int) -> int:
    """Return which neighbour to measure, for a bank of so many samples of so many classes.

    The paper takes the 50th of 45,000 (10 classes), the 200th of 45,000 (100 classes) and the 10th of 12,811 (1,000
    classes). Between these: a smaller bank lowers k in proportion, k stays within four fifths of a class's samples, so
    that the neighbours can be of one class, and it is at least 10.

    Examples
    --------
    >>> choose_k(45_000, 10), choose_k(45_000, 100), choose_k(12_811, 1000)
    (50, 200, 10)
    >>> choose_k(50_000, 10), choose_k(9_000, 10), choose_k(6, 2)
    (50, 10, 6)
    """
    largest = 50 if classes < FEW_CLASSES else 200
    in_proportion = largest * min(samples, PAPER_SAMPLES) / PAPER_SAMPLES
    k = max(SMALLEST_K, int(min(in_proportion, 0.8 * samples / classes)))
    return min(k, samples)


def choose_bank_size(available: int, bank: Literal["auto"] | int | float | None) -> int:
    """Return how many training samples the bank keeps.

    Examples
    --------
    >>> choose_bank_size(45_000, "auto"), choose_bank_size(1_281_167, "auto"), choose_bank_size(1000, 0.1)
    (45000, 12811, 100)
    """
    if bank is None:
        return available
    if bank == "auto":
        return available if available <= WHOLE_SET else max(SMALLEST_SHARE, available // 100)
    if isinstance(bank, bool) or not isinstance(bank, (int, float)):
        raise TypeError(f"bank must be 'auto', a number of samples, a fraction or None for all, got {bank!r}.")
    size = round(available * bank) if isinstance(bank, float) else bank
    if not 1 <= size <= available:
        raise ValueError(f"bank = {bank!r} asks for {size} of {available} training samples.")
    return size
