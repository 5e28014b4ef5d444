"""The accuracy of a classifier over time: estimated, claimed, and known from late labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from markupsafe import Markup

from densecal.report.svg import Canvas, Margin, nice_ticks
from densecal.report.text import percent

if TYPE_CHECKING:
    from densecal.monitor.windows import Alarm, Window

MOST_MARKS = 120
"""More windows than this are drawn as a line without marks."""
WIDTH_PER_NAME = 90.0
LONGEST_NAME = 16


def timeline_chart(
    windows: Sequence[Window], alarms: Sequence[Alarm], alarm_below: float, *, size: tuple[float, float] = (980, 380)
) -> Markup:
    """Draw the estimate of each window with its interval, what temperature scaling claims, and the labels' accuracy."""
    known = [(place, found) for place, one in enumerate(windows) if (found := one.labelled_accuracy) is not None]
    estimates = [window.estimate for window in windows]
    lowest = min([alarm_below, *(one.low for one in estimates), *(found.estimate for _, found in known)])
    floor = max(0.0, int(10 * lowest) / 10)
    last = estimates[-1]
    label = (
        f"Estimated accuracy of {len(windows)} windows, from {percent(estimates[0].accuracy)} to "
        f"{percent(last.accuracy)}; alarm below {percent(alarm_below)}."
    )
    margin, xlim = Margin(top=28, right=20, bottom=32, left=38), (-0.5, len(windows) - 0.5)
    canvas = Canvas(size, label, xlim=xlim, ylim=(floor, 1.0), margin=margin, kind="timeline")
    _shade_alarms(canvas, windows, alarms)
    ticks = [tenth / 10 for tenth in range(round(10 * floor), 11)]
    canvas.y_axis(ticks, "accuracy (%)", show=lambda tick: f"{100 * tick:.0f}")
    canvas.x_axis(_named_places(canvas, len(windows)), show=lambda place: _short(windows[int(place)].end_at))
    canvas.line([(xlim[0], alarm_below), (xlim[1], alarm_below)], "limit")
    canvas.text(
        (canvas.left, canvas.y(alarm_below) + 14), f"alarm below {percent(alarm_below)}", "tick", anchor="start"
    )
    lower, upper = ([(place, getattr(one, end)) for place, one in enumerate(estimates)] for end in ("low", "high"))
    if len(windows) > 1:
        canvas.area(lower, upper, "estimate-range")
    canvas.line([(place, one.plain_confidence) for place, one in enumerate(estimates)], "claim-curve")
    canvas.line([(place, one.accuracy) for place, one in enumerate(estimates)], "estimate-curve")
    for place, window in enumerate(windows if len(windows) <= MOST_MARKS else ()):
        if len(windows) == 1:
            canvas.line([(place, window.estimate.low), (place, window.estimate.high)], "whisker")
        canvas.mark((place, window.estimate.accuracy), "o", "estimate-mark", tip=str(window), r=4.5)
    for place, found in known:
        canvas.line([(place, max(found.low, floor)), (place, found.high)], "whisker")
        canvas.mark((place, found.estimate), "D", "truth-mark", tip=str(windows[place]), r=4)
    return canvas.render()


def series_panel(values: Sequence[float], name: str, *, unit: str, reference: float = 0.0) -> Markup:
    """Draw one quantity over time, and a line at its value without a shift."""
    step = nice_ticks(max(max(values) - min([*values, reference]), 1e-3), 3)[1]
    low = step * min(0, int(min([*values, reference]) / step) - 1 if min(values) < 0 else 0)
    ticks = [low + step * place for place in range(round((max([*values, reference, low + step]) - low) / step) + 2)]
    label = f"{name} over time, from {values[0]:.2f} to {values[-1]:.2f} {unit}."
    limits = {"xlim": (-0.5, len(values) - 0.5), "ylim": (ticks[0], ticks[-1])}
    canvas = Canvas((230, 130), label, **limits, margin=Margin(10, 10, 14, 36), kind="series")
    canvas.y_axis(ticks)
    canvas.line([(-0.5, reference), (len(values) - 0.5, reference)], "zero")
    canvas.line(list(enumerate(values)), "estimate-curve")
    canvas.mark((len(values) - 1, values[-1]), "o", "estimate-mark", tip=f"{values[-1]:.2f} {unit}", r=3.5)
    return canvas.render()


def _shade_alarms(canvas: Canvas, windows: Sequence[Window], alarms: Sequence[Alarm]) -> None:
    for alarm in alarms:
        until = windows[-1].end if alarm.until is None else alarm.until
        inside = [place for place, window in enumerate(windows) if alarm.since <= window.start < until]
        if inside:
            canvas.box((inside[0] - 0.5, inside[-1] + 0.5), canvas.ylim, "alarm-span", tip=str(alarm))


def _named_places(canvas: Canvas, count: int) -> list[int]:
    """Return the windows whose time is written, as many as there is space for."""
    step = -(-count // max(2, int((canvas.right - canvas.left) / WIDTH_PER_NAME)))
    return list(range(0, count, step))


def _short(name: str) -> str:
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1] + "…"
