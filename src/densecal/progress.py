"""Progress bars, shown on terminals only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from typing import TypeVar

Item = TypeVar("Item")


def track(items: Iterable[Item], description: str, *, total: int | None = None) -> Iterator[Item]:
    """Yield the items and show a progress bar on standard error."""
    from rich.console import Console
    from rich.progress import track as rich_track

    console = Console(stderr=True)
    if total is None and isinstance(items, Sized):
        total = len(items)
    yield from rich_track(
        items, description, total=total, console=console, disable=not console.is_terminal, transient=True
    )
