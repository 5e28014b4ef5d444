"""Probabilities as logits, for classifiers that give nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np

SMALLEST_PROBABILITY = 1e-12


def probability_floor(probabilities: Any) -> float:
    """Return what stands for a predicted probability of zero: half the smallest positive one.

    A forest of 100 trees that all agree says 0, which means less than 1 in 100 and not 1 in 10^12.
    """
    positive = probabilities[probabilities > 0]
    return max(float(positive.min()) / 2, SMALLEST_PROBABILITY) if positive.size else SMALLEST_PROBABILITY


def to_logits(values: Any, floor: float | None) -> Any:
    """Return probabilities as logits with the floor, and scores (no floor) unchanged."""
    return values if floor is None else np.log(np.maximum(values, floor))
