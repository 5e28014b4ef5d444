"""A dumbbell per test set: the accuracy that is claimed, the one that is estimated and the true one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from markupsafe import Markup

from densecal.report.svg import Canvas, Margin, marker_path
from densecal.report.text import percent

if TYPE_CHECKING:
    from densecal.report.estimates import EstimatedSet

ROW_HEIGHT = 38.0
WIDE = 500.0
COLUMN = 46.0
MARKS = {"claim": "o", "estimate": "o", "truth": "D"}


def estimates_chart(sets: Sequence[EstimatedSet], *, width: float = 980) -> Markup:
    """Draw one row per test set, and the three accuracies of each in columns beside it."""
    column = COLUMN if width > WIDE else COLUMN * 0.62
    longest = max(len(one.name) for one in sets)
    margin = Margin(top=30, right=3 * column + 14, bottom=40, left=min(14 + 7.2 * longest, width * 0.3))
    size = (width, ROW_HEIGHT * len(sets) + margin.top + margin.bottom)
    lowest = min(min(one.accuracy, one.estimate.low, one.estimate.plain_confidence) for one in sets)
    floor = max(0.0, int(10 * lowest) / 10)
    label = "Accuracy claimed by temperature scaling, estimated by densecal, and true: " + "; ".join(
        f"{one.name} {', '.join(percent(value) for value in _values(one).values())}" for one in sets
    )
    canvas = Canvas(size, label, xlim=(floor, 1.0), ylim=(0, len(sets)), margin=margin, kind="estimates")
    tenths = range(round(10 * floor), 11, 1 if width > WIDE or floor > 0.6 else 2)
    canvas.x_axis([tenth / 10 for tenth in tenths], "accuracy (%)", show=lambda tick: f"{100 * tick:.0f}", grid=True)
    places = {name: canvas.right + column * (number + 0.6) + 10 for number, name in enumerate(MARKS)}
    for name, x in places.items():
        _draw_mark(canvas, (x, canvas.top - 16), name)
    for number, one in enumerate(sets):
        _draw_row(canvas, one, canvas.y(len(sets) - number - 0.5), places)
    return canvas.render()


def _values(one: EstimatedSet) -> dict[str, float]:
    return {"claim": one.estimate.plain_confidence, "estimate": one.estimate.accuracy, "truth": one.accuracy}


def _draw_row(canvas: Canvas, one: EstimatedSet, y: float, places: dict[str, float]) -> None:
    found, values = one.estimate, _values(one)
    interval = f"{percent(found.low, 1)} to {percent(found.high, 1)}"
    tip = (
        f"{one.name}: temperature scaling claims {percent(found.plain_confidence, 1)}, densecal estimates "
        f"{percent(found.accuracy, 1)} ({interval}), true {percent(one.accuracy, 1)}"
    )
    canvas.text((canvas.left - 12, y + 4), one.name, "row-name", anchor="end")
    canvas.pixel_line([(canvas.x(found.plain_confidence), y), (canvas.x(one.accuracy), y)], "claim-line")
    left, right = canvas.x(max(found.low, canvas.xlim[0])), canvas.x(found.high)
    canvas.pixel_box(left, y - 7, (right - left, 14), "estimate-range", tip=tip, rx=7)
    for name, value in values.items():
        _draw_mark(canvas, (canvas.x(value), y), name, tip=tip)
        css = "row-value strong" if name == "truth" else "row-value"
        canvas.text((places[name], y + 4), f"{100 * value:.0f}", css)


def _draw_mark(canvas: Canvas, at: tuple[float, float], name: str, *, tip: str = "") -> None:
    path = marker_path(MARKS[name], *at, 5.5 if name != "truth" else 4.5)
    canvas.add("path", f"{name}-mark", f'd="{path}"', tip=tip)
