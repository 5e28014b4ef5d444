"""The HTML page of a monitor: the accuracy over time, the alarms and the drift."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from markupsafe import Markup

from densecal.display import counted, percent
from densecal.estimation.accuracy_estimate import EXTRAPOLATED
from densecal.io.atomic_files import atomic_write
from densecal.report.page import render_page
from densecal.report.svg import NARROW, Canvas, Margin, in_percent, nice_ticks, shortened

if TYPE_CHECKING:
    from densecal.monitor.alarms import Alarm
    from densecal.monitor.monitor import Monitor
    from densecal.monitor.windows import Window

MOST_MARKS = 120
"""More windows are drawn as a line without marks."""
MOST_ALARMS = 5
"""The number of latest alarms that are shown; older ones are counted."""
WIDTH_PER_NAME = 90.0
LONGEST_NAME = 16
CLEAN_FAR_SHARE = 1.0
"""Percentage of clean inputs that count as far."""


def write_monitor_report(path: str | Path, monitor: Monitor, *, title: str = "Is the classifier still right?") -> None:
    """Write a self-contained HTML page with the windows and alarms of a monitor.

    Parameters
    ----------
    path : str or path
        The file to write; the write is atomic.
    monitor : Monitor
        A monitor with at least one complete window.
    title : str
        The heading of the page.
    """
    windows, alarms = monitor.windows, monitor.alarms
    if not windows:
        raise ValueError("The monitor has no complete window yet: update it with more samples, or call close_window.")
    limit = monitor.settings.alarm_below
    context = {
        "settings": monitor.settings,
        "clean_accuracy": monitor.clean_accuracy,
        "n_samples": monitor.n_samples,
        "windows": [{"window": window, "drift": _strongest_drift(window)} for window in reversed(windows)],
        "alarms": [*reversed(alarms)],
        "most_alarms": MOST_ALARMS,
        "status": describe_status(monitor),
        "limit": describe_limit(monitor),
        "wide": _timeline_chart(windows, alarms, limit),
        "narrow": _timeline_chart(windows, alarms, limit, size=(NARROW, 300)),
        "panels": _panels(windows),
    }
    html = render_page("monitor.html", title, context)
    with atomic_write(path) as temporary:
        temporary.write_text(html, encoding="utf-8")


class Status(NamedTuple):
    """The current status: good, even or bad, a headline, and what else to know."""

    tone: str
    headline: str
    notes: list[str]


def describe_status(monitor: Monitor) -> Status:
    """Return the current status of a monitor with at least one complete window."""
    last, alarm, limit = monitor.windows[-1].estimate, monitor.alarm, monitor.settings.alarm_below
    found = f"The estimated accuracy is {last.accuracy:.1%} ({100 * last.low:.1f} to {last.high:.1%})"
    if alarm is not None:
        tone = "bad"
        place = "below" if last.accuracy < limit else "and may lie below"
        text = f"Alarm since {alarm.since_at}, raised at {alarm.raised_at}. {found}, {place} {limit:.1%}."
    elif (labelled := _labelled(monitor)) and labelled[-1].labels_lie_below(monitor.settings):
        known = f"The accuracy on the labels of {labelled[-1].end_at} lies below {limit:.1%}, by more than chance."
        tone, text = "bad", f"{known} {found}."
    elif last.accuracy < limit:
        tone, text = "even", f"{found}, below {limit:.1%}, but not by enough for an alarm."
    else:
        earlier = counted(len(monitor.alarms), "earlier alarm") if monitor.alarms else "no alarm"
        tone, text = "good", f"{found}, not below {limit:.1%}; {earlier}."
    notes = [f"The estimate is {EXTRAPOLATED}."] if last.is_extrapolated else []
    notes += _labels_below(monitor)
    is_doubtful = bool(notes)
    if monitor.n_open:
        latest = monitor.estimate()
        notes.append(
            f"{counted(monitor.n_open, 'sample')} after the last window; over the latest {latest.n_samples:,} samples "
            f"the estimate is {latest.accuracy:.1%}."
        )
        is_doubtful = is_doubtful or latest.accuracy < limit
    tone = "even" if tone == "good" and is_doubtful else tone
    return Status(tone, text.replace("%", " %"), [note.replace("%", " %") for note in notes])


def describe_limit(monitor: Monitor) -> str:
    """Return the estimates below which an alarm is raised, as text."""
    settings = monitor.settings
    samples = counted(settings.window, "sample")
    return (
        f"With {counted(monitor.n_validation, 'validation sample')} and windows of {samples}, an alarm is raised if "
        f"one window lies below about {monitor.effective_limit:.1%}, or eight in a row below about "
        f"{monitor.lasting_limit:.1%}. A larger validation set or window brings these limits closer to "
        f"{settings.alarm_below:.1%}."
    ).replace("%", " %")


def _labelled(monitor: Monitor) -> list[Window]:
    return [window for window in monitor.windows if window.n_labels]


def _labels_below(monitor: Monitor) -> Iterator[str]:
    """Yield what the labels say, if the accuracy on those of the latest window or clearly on others is too low."""
    labelled, limit = _labelled(monitor), monitor.settings.alarm_below
    for window in labelled[-1:]:
        found = window.labelled_accuracy
        if found is not None and found.estimate < limit:
            yield (
                f"On {counted(window.n_labels, 'label')} of {window.end_at} the accuracy is {found.estimate:.1%} "
                f"({100 * found.low:.1f} to {found.high:.1%}), below {limit:.1%}."
            )
    below = [window.end_at for window in labelled if window.labels_lie_below(monitor.settings)]
    if below and len(labelled) > 1:
        names = ", ".join(dict.fromkeys(below[-MOST_ALARMS:]))
        earlier = f"{len(below) - MOST_ALARMS} earlier ones and " if len(below) > MOST_ALARMS else ""
        yield (
            f"In {len(below)} of {len(labelled)} windows with labels, the accuracy on them lies below {limit:.1%} by "
            f"more than chance: {earlier}{names}."
        )


def _strongest_drift(window: Window) -> str:
    if not window.estimate.drift:
        return "–"
    layer, drift = max(window.estimate.drift.items(), key=lambda item: item[1])
    return f"{layer} {drift:+.2f}"


def _panels(windows: tuple[Window, ...]) -> Iterator[dict[str, Any]]:
    """Yield one chart of the share of far inputs, and one of the drift of each layer."""
    far = [100 * window.estimate.far_share for window in windows]
    yield {"name": "Far inputs (%)", "chart": _series_panel(far, "Far inputs", unit="%", reference=CLEAN_FAR_SHARE)}
    for layer in windows[-1].estimate.drift:
        drift = [window.estimate.drift[layer] for window in windows]
        yield {"name": layer, "chart": _series_panel(drift, f"Drift of {layer}", unit="standard deviations")}


def _timeline_chart(
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
    canvas.y_axis(ticks, "accuracy (%)", show=in_percent)
    names = [shortened(window.end_at, LONGEST_NAME) for window in windows]
    most_names = max(2, int((canvas.right - canvas.left) / WIDTH_PER_NAME))
    canvas.x_axis(range(0, len(windows), -(-len(windows) // most_names)), show=lambda place: names[int(place)])
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


def _series_panel(values: Sequence[float], name: str, *, unit: str, reference: float = 0.0) -> Markup:
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
