"""The windows and alarms of a monitor on the screen."""

from __future__ import annotations

from pathlib import Path

from rich.console import Group

from densecal.cli.app import open_console, shown
from densecal.cli.tables import plain_table
from densecal.display import counted, percent
from densecal.monitor.monitor import Monitor
from densecal.report.monitor_page import MOST_ALARMS, describe_limit, describe_status

MAX_WINDOWS_SHOWN = 20


def print_windows(watched: Monitor, output: Path | None) -> None:
    """Print the latest windows, the latest alarms, and where the page was written."""
    console, alarms = open_console(), watched.alarms
    console.print(_windows_table(watched))
    console.print(f"[dim]{shown(describe_limit(watched))}[/dim]")
    if len(alarms) > MOST_ALARMS:
        console.print(f"[dim]{counted(len(alarms) - MOST_ALARMS, 'older alarm')}[/dim]")
    for alarm in alarms[-MOST_ALARMS:]:
        console.print(f"[red]alarm[/red] {shown(str(alarm))}")
    status = describe_status(watched)
    console.print(f"[bold]{shown(status.headline)}[/bold]")
    for note in status.notes:
        console.print(shown(note))
    if output is not None:
        console.print(f"[dim]written to {shown(str(output))}[/dim]")


def _windows_table(watched: Monitor) -> Group:
    rows = []
    windows = watched.windows
    for one in windows[-MAX_WINDOWS_SHOWN:]:
        found, known = one.estimate, one.labelled_accuracy
        mark = "[red]below[/red]" if found.accuracy < watched.settings.alarm_below else ""
        interval = f"{100 * found.low:.1f}–{100 * found.high:.1f}"
        labelled = ""
        if known is not None:
            ends = f"{100 * known.low:.1f}–{100 * known.high:.1f}"
            labelled = f"{percent(known.estimate, 1)} of {one.n_labels:,} ({ends})"
        numbers = [percent(found.accuracy, 1), interval, percent(found.plain_confidence, 1), labelled]
        rows.append([shown(one.end_at), f"{found.n_samples:,}", *numbers, percent(found.far_share, 1), mark])
    hidden = len(windows) - len(rows)
    title = "Estimated accuracy over time" + (f" (the last {len(rows)} of {len(windows)} windows)" if hidden else "")
    heads = ["window until", "samples", "estimated", "95% interval", "TS claims", "on labels", "far inputs", ""]
    return plain_table(title, heads, rows)
