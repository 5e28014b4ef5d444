"""The 18 published corruptions at five severities, batched, on CPU or GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from densecal.shift.corruptions.constants import CORRUPTIONS, SEVERITIES, Corruption

if TYPE_CHECKING:
    from densecal.shift.corruptions.apply import corrupt

__all__ = ["CORRUPTIONS", "SEVERITIES", "Corruption", "corrupt"]


def __getattr__(name: str) -> Any:
    # The tables need no torch; corrupt does, and is imported when first asked for.
    if name == "corrupt":
        from densecal.shift.corruptions.apply import corrupt

        return corrupt
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
