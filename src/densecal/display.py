"""Numbers as text, and progress bars."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

Item = TypeVar("Item")
SECONDS_BETWEEN_LINES = 30.0


def track(items: Iterable[Item], description: str, *, total: int | None = None) -> Iterator[Item]:
    """Yield the items; show a progress bar on standard error or, without a terminal, a line every half minute."""
    from rich.console import Console
    from rich.progress import track as rich_track

    console = Console(stderr=True)
    total = length_of(items) if total is None else total
    if console.is_terminal:
        yield from rich_track(iter(items), description, total=total, console=console, transient=True)
        return
    start = last = time.monotonic()
    for done, item in enumerate(items):
        now = time.monotonic()
        if now - last >= SECONDS_BETWEEN_LINES:
            last = now
            of_total = "" if total is None else f" of {total:,}"
            sys.stderr.write(f"{description}: {done:,}{of_total} after {now - start:.0f} s\n")
            sys.stderr.flush()
        yield item


def length_of(items: Any) -> int | None:
    """Return the number of items, or None if it is unknown, such as for a DataLoader over a stream."""
    try:
        return len(items)
    except (TypeError, NotImplementedError):
        return None


def points(share: float) -> str:
    """Format a share in percentage points."""
    return "–" if math.isnan(share) else f"{100 * share:.1f}"


def percent(share: float, digits: int = 0) -> str:
    """Format a share as a percentage."""
    return f"{100 * share:.{digits}f}\u202f%"


def counted(count: int, noun: str, plural: str = "") -> str:
    """Format a count with its noun, such as ``1 sample`` or ``2,500 samples``."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
