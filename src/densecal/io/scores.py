"""Convert probabilities in files, and single scores of two classes, to logits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from densecal.arrays import probability_floor, to_logits
from densecal.arrays.checks import FEW_ROWS, check_finite
from densecal.errors import ArtefactError

if TYPE_CHECKING:
    from densecal.io.output_files import FileLayout

SUM_TOLERANCE = 0.25
"""Rounding to few decimals changes the sum of many probabilities by up to this."""


def as_logits(path: Path, scores: Any, layout: FileLayout, *, is_single: bool) -> tuple[Any, float | None]:
    """Return probabilities, or the single score of the second class, as logits, and the floor of the probabilities.

    Without ``layout.probabilities`` the scores must be single.
    """
    if not layout.probabilities:
        if len(scores) >= FEW_ROWS and not layout.assume_logits:
            _reject_single_probabilities(path, scores, percentages=not layout.fitted_on_logits)
        return np.stack([np.zeros(len(scores)), np.ravel(scores)], axis=1), None
    shares = _shares(path, np.asarray(scores, dtype=np.float64), is_single=is_single)
    floor = probability_floor(shares) if layout.probability_floor is None else layout.probability_floor
    return to_logits(shares, floor), floor


def _reject_single_probabilities(path: Path, scores: Any, *, percentages: bool) -> None:
    """Raise if single scores look like probabilities or percentages: logits of both classes have both signs.

    Without ``percentages`` they may be positive logits, such as those of a day with one prevalent class.
    """
    low, high = float(scores.min()), float(scores.max())
    if low < 0 or high > (100 if percentages else 1):
        return
    found = "[0, 1], as probabilities do" if high <= 1 else "[0, 100], as percentages do"
    raise ArtefactError(
        f"{path}: every score lies in {found}. Pass --probabilities or, if they are logits, --assume-logits."
    )


def _shares(path: Path, values: Any, *, is_single: bool) -> Any:
    """Return probabilities or percentages as probabilities of each class; raise for other values."""
    check_finite(values, f"{path}: the probabilities")
    total = 100.0 if values.size and values.max() > 1 + 1e-6 else 1.0
    shares = values / total
    low, high = (float(shares.min()), float(shares.max())) if values.size else (0.0, 1.0)
    if low < -1e-6 or high > 1 + 1e-6:
        raise ArtefactError(
            f"{path}: with --probabilities the scores must lie in [0, 1], or in [0, 100] as percentages, got values "
            f"from {values.min():g} to {values.max():g}. If they are logits, omit --probabilities."
        )
    shares = np.clip(shares, 0, 1)
    if is_single:
        return np.stack([1 - np.ravel(shares), np.ravel(shares)], axis=1)
    sums = shares.sum(axis=-1)
    if sums.size and np.abs(sums - 1).max() > SUM_TOLERANCE:
        row = int(np.abs(sums - 1).argmax())
        raise ArtefactError(
            f"{path}: with --probabilities every row must sum to 1, or to 100 as percentages, but row {row} sums to "
            f"{total * sums[row]:g} (rows count from 0). Check --scores; other columns may be among them."
        )
    return shares
