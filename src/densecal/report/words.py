"""How the report and the commands write numbers and names, the same way everywhere."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from densecal.calibrators.names import base_method, is_shift_fitted

if TYPE_CHECKING:
    from densecal.metrics import Interval


INTERVALS_EXPLAINED = (
    "The ECE of a finite sample is biased upwards; the interval corrects for that, so it can lie mostly below the "
    "value."
)
"""To be shown wherever intervals are."""


def points(share: float, digits: int = 1) -> str:
    """Write a share as percentage points.

    Examples
    --------
    >>> points(0.0734), points(float("nan"))
    ('7.3', '–')
    """
    return "–" if math.isnan(share) else f"{100 * share:.{digits}f}"


def with_interval(found: Interval) -> str:
    """Write an estimate and, where it has one, its interval, as percentage points.

    Examples
    --------
    >>> from densecal.metrics import Interval
    >>> with_interval(Interval(0.05, 0.04, 0.06, 0.95)), with_interval(Interval(0.05, math.nan, math.nan, 0.95))
    ('5.0 (4.0 to 6.0)', '5.0')
    """
    ends = "" if math.isnan(found.low) else f" ({points(found.low)} to {points(found.high)})"
    return points(found.estimate) + ends


def percent(share: float, digits: int = 0) -> str:
    """Write a share as a percentage.

    Examples
    --------
    >>> percent(0.934)
    '93\u202f%'
    """
    return f"{100 * share:.{digits}f}\u202f%"


def severity_name(severity: int) -> str:
    """Name a severity in words.

    Examples
    --------
    >>> severity_name(0), severity_name(3)
    ('clean data', 'severity 3')
    """
    return "clean data" if severity == 0 else f"severity {severity}"


def css_name(method: str) -> str:
    """Return the CSS custom property that holds a method's colour.

    Examples
    --------
    >>> css_name("dac+ets")
    '--m-ets'
    """
    name = re.sub(r"[^a-z0-9]+", "-", base_method(method).lower()).strip("-") or "other"
    return f"--m-{name}-shift" if is_shift_fitted(method) else f"--m-{name}"


def css_colour(method: str) -> str:
    """Return the CSS value of a method's colour.

    Examples
    --------
    >>> css_colour("ts")
    'var(--m-ts)'
    """
    return f"var({css_name(method)})"


def counted(count: int, noun: str, plural: str = "") -> str:
    """Write how many of something there are.

    Examples
    --------
    >>> counted(1, "sample"), counted(2500, "sample"), counted(3, "class", "classes")
    ('1 sample', '2,500 samples', '3 classes')
    """
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
