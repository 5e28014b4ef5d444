"""How the report and the commands write numbers and names."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from densecal.calibrators.names import base_method, is_shift_fitted

if TYPE_CHECKING:
    from densecal.metrics import Interval

INTERVALS_EXPLAINED = (
    "The ECE of a finite sample is biased upwards. The interval corrects for the bias, so it can lie mostly below the "
    "value."
)
"""Shown wherever intervals are."""


def points(share: float) -> str:
    """Write a share as percentage points."""
    return "–" if math.isnan(share) else f"{100 * share:.1f}"


def with_interval(found: Interval) -> str:
    """Write an estimate and, if it has one, its interval as percentage points."""
    ends = "" if math.isnan(found.low) else f" ({points(found.low)} to {points(found.high)})"
    return points(found.estimate) + ends


def percent(share: float, digits: int = 0) -> str:
    """Write a share as a percentage."""
    return f"{100 * share:.{digits}f}\u202f%"


def severity_name(severity: int) -> str:
    """Name a severity in words."""
    return "clean data" if severity == 0 else f"severity {severity}"


def css_name(method: str) -> str:
    """Return the CSS custom property that holds the colour of a method."""
    name = re.sub(r"[^a-z0-9]+", "-", base_method(method).lower()).strip("-") or "other"
    return f"--m-{name}-shift" if is_shift_fitted(method) else f"--m-{name}"


def css_colour(method: str) -> str:
    """Return the CSS value of the colour of a method."""
    return f"var({css_name(method)})"


def counted(count: int, noun: str, plural: str = "") -> str:
    """Write a number with its noun, such as ``1 sample`` or ``2,500 samples``."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def listed(parts: list[str]) -> str:
    """Join parts as in a sentence: ``a, b and c``."""
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))
