"""The page of a monitor: the accuracy over time, the alarms, and what drifts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from densecal.io.files import atomic_write
from densecal.report.charts.timeline import series_panel, timeline_chart
from densecal.report.page import render_page
from densecal.report.text import counted

if TYPE_CHECKING:
    from densecal.monitor.monitor import Monitor
    from densecal.monitor.windows import Window

NARROW = (350, 300)
CLEAN_FAR_SHARE = 1.0
"""Percentage of clean inputs that count as far."""


def write_monitor_report(path: str | Path, monitor: Monitor, *, title: str = "Is the classifier still right?") -> None:
    """Write a self-contained HTML page of what a monitor has seen.

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
        "windows": [{"window": window, "drift": _strongest_drift(window)} for window in windows],
        "alarms": alarms,
        "status": describe_status(monitor),
        "wide": timeline_chart(windows, alarms, limit),
        "narrow": timeline_chart(windows, alarms, limit, size=NARROW),
        "panels": _panels(windows),
    }
    html = render_page("monitor.html", title, context)
    with atomic_write(path) as temporary:
        temporary.write_text(html, encoding="utf-8")


def describe_status(monitor: Monitor) -> dict[str, str]:
    """Return whether there is an alarm now, as a tone and a headline."""
    last, alarm, limit = monitor.windows[-1].estimate, monitor.alarm, monitor.settings.alarm_below
    found = f"The estimated accuracy is {last.accuracy:.1%} ({100 * last.low:.1f} to {last.high:.1%})"
    if alarm is not None:
        tone, text = "bad", f"Alarm since {alarm.since_at}. {found}, below {limit:.1%}."
    elif last.accuracy < limit:
        tone, text = "even", f"{found}, below {limit:.1%}, which chance may explain: no alarm."
    else:
        earlier = counted(len(monitor.alarms), "earlier alarm") if monitor.alarms else "no alarm"
        tone, text = "good", f"{found}, not below {limit:.1%}; {earlier}."
    return {"tone": tone, "text": text.replace("%", " %")}


def _strongest_drift(window: Window) -> str:
    drift = window.estimate.drift
    if not drift:
        return "–"
    layer = max(drift, key=lambda name: drift[name])
    return f"{layer} {drift[layer]:+.2f}"


def _panels(windows: tuple[Window, ...]) -> list[dict[str, Any]]:
    """Return one chart of the share of far inputs, and one of the drift of each layer."""
    far = [100 * window.estimate.far_share for window in windows]
    panels = [{"name": "Far inputs (%)", "chart": series_panel(far, "Far inputs", unit="%", reference=CLEAN_FAR_SHARE)}]
    for layer in windows[-1].estimate.drift:
        values = [window.estimate.drift[layer] for window in windows]
        panels.append({"name": layer, "chart": series_panel(values, f"Drift of {layer}", unit="standard deviations")})
    return panels
