"""Masked classes: logits such as -1e4, -1e9 or the lowest float, which give a class the probability zero."""

from __future__ import annotations

import numpy as np

from densecal.arrays import Array, asarray_like, namespace, to_numpy
from densecal.calibrators.solvers.temperature_fit import solve_temperature
from densecal.calibrators.temperature import TemperedLoss
from densecal.errors import warn_user

MASKED_TEMPERATURES = 300.0
"""A logit this many temperatures below the largest of its row, with probability e^-300, masks its class."""
HIDDEN = -1e30
"""A score whose exponential is zero at any temperature, and finite."""


def mask_gap(temperature: float) -> float:
    """Return how far below the largest of its row a logit masks its class, given the fitted temperature."""
    return MASKED_TEMPERATURES * max(temperature, 1.0)


def find_mask_gap(logits: Array, labels: Array) -> float:
    """Return the gap for a method that fits no temperature, from the temperature with the largest likelihood."""
    return mask_gap(solve_temperature(TemperedLoss(logits, labels, "nll"), warn=False))


def fill_masked(logits: Array, gap: Array | float) -> tuple[Array, Array]:
    """Return the logits with masked ones replaced by the lowest other logit of the row, and which ones are masked.

    Otherwise methods that use all logits of a row, such as their mean, would depend on the masking value.
    """
    xp = namespace(logits)
    largest = xp.max(logits, axis=1, keepdims=True)
    masked = logits < largest - (gap if isinstance(gap, float) else asarray_like(gap, logits))
    lowest = xp.min(xp.where(masked, largest, logits), axis=1, keepdims=True)
    return xp.where(masked, lowest, logits), masked


def hide_masked(scores: Array, masked: Array) -> Array:
    """Return the scores with probability zero for masked classes."""
    xp = namespace(scores)
    return xp.where(masked, xp.full_like(scores, HIDDEN), scores)


def without_masked_rows(logits: Array, labels: Array, *more: Array) -> tuple[Array, ...]:
    """Return the rows without masked classes, for a fit that needs all logits; if there are none, filled rows.

    ``more`` are NumPy arrays with one row per sample.
    """
    xp = namespace(logits)
    with np.errstate(over="ignore"):
        spread = xp.max(logits, axis=1) - xp.min(logits, axis=1)
    if float(xp.max(spread)) <= MASKED_TEMPERATURES:
        return logits, labels, *more
    gap = find_mask_gap(logits, labels)
    kept = to_numpy(spread) <= gap
    if kept.all():
        return logits, labels, *more
    some = bool(kept.any())
    done = "They are left out of the fit" if some else "The fit treats these classes as the least likely of the others"
    warn_user(
        f"{int((~kept).sum())} of {len(kept)} validation samples have masked classes (logits more than {gap:.4g} below "
        f"the largest). {done}. Use 'ts', 'ets' or 'dac' if masked classes are the rule."
    )
    index = np.flatnonzero(kept)
    if not some:
        return fill_masked(logits, gap)[0], labels, *more
    return logits[index], labels[index], *(array[index] for array in more)
