"""The estimated accuracy of each test set as a picture of characters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from densecal.cli.screen import plain_table, shown

if TYPE_CHECKING:
    from rich.console import Group

    from densecal.report.estimates import EstimatedSet

CLAIM, ESTIMATE, TRUTH, RANGE = "○", "●", "◆", "─"
WIDTH_OF_COLUMNS = 64
WIDEST_PICTURE, NARROWEST_PICTURE = 50, 20


def estimates_table(sets: Sequence[EstimatedSet], width: int) -> Group:
    """Return one row per test set: what is claimed, estimated and true, on a scale that ends at 100 %."""
    from densecal.report.text import percent

    lowest = min(min(one.accuracy, one.estimate.low, one.estimate.plain_confidence) for one in sets)
    cells = min(WIDEST_PICTURE, max(NARROWEST_PICTURE, width - WIDTH_OF_COLUMNS))
    rows = [
        [
            shown(one.name),
            _picture(one, lowest, cells),
            percent(one.estimate.plain_confidence),
            f"{percent(one.estimate.accuracy)} ({100 * one.estimate.low:.0f}–{100 * one.estimate.high:.0f})",
            percent(one.accuracy),
        ]
        for one in sets
    ]
    heads = ["test set", "", f"{CLAIM} claimed by TS", f"{ESTIMATE} estimated", f"{TRUTH} true"]
    return plain_table("Is the classifier still right? Its accuracy, estimated without labels", heads, rows)


def _picture(one: EstimatedSet, lowest: float, cells: int) -> str:
    def place(share: float) -> int:
        return round((cells - 1) * (share - lowest) / max(1 - lowest, 1e-9))

    line = [" "] * cells
    found = one.estimate
    line[place(found.low) : place(found.high) + 1] = RANGE * (place(found.high) - place(found.low) + 1)
    for mark, share in ((CLAIM, found.plain_confidence), (ESTIMATE, found.accuracy), (TRUTH, one.accuracy)):
        line[place(share)] = mark
    colours = {CLAIM: "dark_orange", ESTIMATE: "blue", RANGE: "blue", TRUTH: "bold"}
    return "".join(f"[{colours[one]}]{one}[/]" if one in colours else one for one in line)
