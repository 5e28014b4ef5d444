"""Convert probabilities in files, and single scores of two classes, to logits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from densecal.arrays import probability_floor, to_logits
from densecal.arrays.checks import (
    FEW_ROWS,
    RANGE_TOLERANCE,
    ROUGH_SUM_TOLERANCE,
    check_finite,
    rounding_slack,
)
from densecal.errors import ArtefactError, warn_user

if TYPE_CHECKING:
    from densecal.io.output_files import FileLayout


def as_logits(path: Path, scores: Any, layout: FileLayout, *, is_single: bool) -> tuple[Any, float | None, bool | None]:
    """Return probabilities, or the single score of the second class, as logits, and the floor of the probabilities.

    The last value says whether they were percentages. Without ``layout.probabilities`` the scores must be single.
    """
    if not layout.probabilities:
        if len(scores) >= FEW_ROWS and not layout.assume_logits:
            _reject_single_probabilities(path, scores, percentages=not layout.fitted_on_logits)
        return np.stack([np.zeros(len(scores)), np.ravel(scores)], axis=1), None, None
    values = np.asarray(scores, dtype=np.float64)
    check_finite(values, f"{path}: the probabilities")
    percentages = bool(values.size and values.max() > 1 + RANGE_TOLERANCE)
    # The rows of several classes sum to 1 or 100, but small percentages of one class look like fractions.
    if is_single and values.size and layout.percentages is not None:
        _check_scale(path, values, found=percentages, expected=layout.percentages)
        percentages = layout.percentages
    shares = _shares(path, values, 100 if percentages else 1, is_single=is_single)
    floor = probability_floor(shares) if layout.probability_floor is None else layout.probability_floor
    return to_logits(shares, floor), floor, percentages if values.size else None


def _check_scale(path: Path, values: Any, *, found: bool, expected: bool) -> None:
    """Raise or warn if single probabilities are not on the scale of the fit, or of an earlier file."""
    high = float(values.max())
    if found and not expected:
        raise ArtefactError(
            f"{path}: the scores must be fractions in [0, 1], as in the fit or in an earlier file, got values up to "
            f"{high:g}. If they are percentages, divide them by 100."
        )
    if expected and not found and len(values) >= FEW_ROWS:
        warn_user(
            f"{path}: no score is above 1. They are read as percentages, as in the fit or in an earlier file: {high:g} "
            f"as {high:g} %. If they are fractions, multiply them by 100."
        )


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


def _shares(path: Path, values: Any, total: int, *, is_single: bool) -> Any:
    """Return values whose rows sum to 1, or to 100, as probabilities of each class; raise for other values."""
    shares = values / total
    low, high = (float(shares.min()), float(shares.max())) if values.size else (0.0, 1.0)
    if low < -RANGE_TOLERANCE or high > 1 + RANGE_TOLERANCE:
        raise ArtefactError(
            f"{path}: with --probabilities the scores must lie in [0, 1], or in [0, 100] as percentages, got values "
            f"from {values.min():g} to {values.max():g}. If they are logits, omit --probabilities."
        )
    shares = np.clip(shares, 0, 1)
    if is_single:
        return np.stack([1 - np.ravel(shares), np.ravel(shares)], axis=1)
    if not values.size:
        return shares
    sums = values.sum(axis=-1)
    row = int(np.abs(sums - total).argmax())
    off = abs(float(sums[row]) - total)
    if off > ROUGH_SUM_TOLERANCE * total and off > rounding_slack(values, total):
        raise ArtefactError(
            f"{path}: with --probabilities every row must sum to 1, or to 100 as percentages, but row {row} sums to "
            f"{sums[row]:g} (rows count from 0). Check the values of the row, and --scores: a class may be missing, or "
            "other columns may be among them."
        )
    return shares
