"""Tables on the screen, of evaluations and of monitors, and evaluations as JSON."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console, Group
from rich.markup import escape
from rich.table import Table

from densecal.calibrators.base import Calibrator
from densecal.calibrators.registry import has_dac, method_label
from densecal.cli.app import open_console, shown
from densecal.display import counted, percent, points
from densecal.evaluation import EvaluationTable
from densecal.metrics import METRICS, Interval
from densecal.monitor.monitor import Monitor
from densecal.report.comparison import method_of
from densecal.report.estimates import EstimatedSet, estimate_sets
from densecal.report.monitor_page import MOST_ALARMS, describe_limit, describe_status
from densecal.report.tables import metric_heading, metric_text, out_of_domain_scores
from densecal.report.tables import severity_table as severity_rows
from densecal.report.text import INTERVALS_EXPLAINED, clean_sets, level_name
from densecal.report.verdict import judge

WIDTH_FOR_INTERVALS = 104
"""Narrower terminals show ±1.0 instead of the ends of an interval, and shorter column headings."""
MAX_SETS_SHOWN, MAX_WINDOWS_SHOWN = 20, 20
WIDTH_BEFORE_METHODS, WIDTH_PER_METHOD = 48, 14
CLAIM, ESTIMATE, TRUTH, RANGE = "○", "●", "◆", "─"
WIDTH_OF_COLUMNS = 64
WIDEST_PICTURE, NARROWEST_PICTURE = 50, 20


def _label(method: str) -> str:
    """Return a method's label with markup escaped."""
    return shown(method_label(method))


def plain_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Group:
    """Return a title and a table whose first column is text and whose others are numbers."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for place, column in enumerate(columns):
        table.add_column(column, justify="right" if place else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return Group(f"[bold]{title}[/bold]", table, "")


def severity_table(table: EvaluationTable, width: int) -> Group:
    """Return the ECE of every method at each severity, overall and on natural shifts, with intervals if available."""
    narrow = width < WIDTH_FOR_INTERVALS
    clean, shifted = ("clean", "{}") if narrow else ("in-domain", "sev. {}")
    clean = "no sev." if len(clean_sets(table)) > 1 else clean
    heads = [clean if severity == 0 else shifted.format(severity) for severity in table.severities]
    if len(heads) > 1:
        heads.append("ALL")
    heads += [escape(f"{name}, natural") for name in table.natural_shifts]
    rows = []
    for row in severity_rows(table)["rows"]:
        label = _label(row["method"])
        cells = [_severity_cell(cell["found"], best=cell["best"], short=narrow) for cell in row["cells"]]
        rows.append([f"[bold]{label}[/bold]" if has_dac(method_of(table, row["method"])) else label, *cells])
    intervals = f", with {table.level:.0%} intervals" if table.has_intervals else ""
    title = f"ECE in percentage points by severity{intervals} (lower is better)"
    found = plain_table(title, ["method", *heads], rows)
    return Group(found, f"[dim]{INTERVALS_EXPLAINED}[/dim]", "") if table.has_intervals else found


def _severity_cell(found: Interval, *, best: bool, short: bool) -> str:

    text = f"[bold green]{points(found.estimate)}[/bold green]" if best else points(found.estimate)
    if math.isnan(found.low):
        return text
    reach = max(found.high - found.estimate, found.estimate - found.low)
    spread = f"±{points(reach)}" if short else f"{points(found.low)}–{points(found.high)}"
    return f"{text}\n[dim]{spread}[/dim]"


def sets_table(table: EvaluationTable, width: int) -> Group:
    """Return one row per test set: its size, the classifier's accuracy, and the ECE of every method."""
    # A narrow terminal shows the uncalibrated classifier and the last methods, which are those given by the user.
    room = max(1, (width - WIDTH_BEFORE_METHODS) // WIDTH_PER_METHOD - 1)
    methods = [table.methods[0], *table.methods[1:][-room:]]
    rows = []
    for place, condition in enumerate(table.conditions[:MAX_SETS_SHOWN]):
        accuracy = percent(table.values[methods[0], "accuracy"][place], 1)
        errors = [points(table.values[method, "ece"][place]) for method in methods]
        rows.append([shown(str(condition)), f"{condition.n_samples:,}", accuracy, *errors])
    if len(table.conditions) > MAX_SETS_SHOWN:
        rows.append([f"... and {len(table.conditions) - MAX_SETS_SHOWN} more (--json)", *[""] * (2 + len(methods))])
    heads = ["test set", "samples", "accuracy", *(_label(method) for method in methods)]
    return plain_table("ECE in percentage points on each test set", heads, rows)


def metrics_table(table: EvaluationTable) -> Group:
    """Return every metric of every method, averaged over severities, and on each natural shift."""
    rows = [
        [
            _label(method) + (f", {escape(level)} (natural shift)" if level else ""),
            *(metric_text(table.estimate(method, metric, level).estimate, metric) for metric in table.metrics),
        ]
        for level in (None, *table.natural_shifts)
        for method in table.methods
    ]
    pooled = len(clean_sets(table)) > 1
    in_domain = f"mean on {level_name(table, 0)}" if pooled else "in-domain"
    only = in_domain if 0 in table.severities else f"at severity {table.severities[0]}"
    where = "mean over all severities" if len(table.severities) > 1 else only
    return plain_table(f"All metrics, {where}", ["method", *map(metric_heading, table.metrics)], rows)


def table_as_json(table: EvaluationTable, calibrators: Mapping[str, Calibrator]) -> dict[str, Any]:
    """Return an evaluation as plain data: every row, means, the verdict and the estimated accuracies."""
    verdict = judge(table)
    return {
        "methods": list(table.methods),
        "severities": list(table.severities),
        "natural_shifts": list(table.natural_shifts),
        "verdict": {"tone": verdict.tone, "text": verdict.headline, "details": list(verdict.details)},
        "by_severity": {metric: table.by_severity(metric).to_dict("records") for metric in table.metrics},
        "by_natural_shift": {metric: table.by_natural_shift(metric).to_dict("records") for metric in table.metrics},
        "overall": {metric: table.overall(metric).to_dict("records") for metric in table.metrics},
        "rows": table.rows().to_dict("records"),
        "out_of_domain": out_of_domain_scores(table),
        "estimates": [one.to_dict() for one in estimate_sets(table, calibrators, verdict.method)],
    }


def print_out_of_domain_table(console: Console, table: EvaluationTable) -> None:
    """Print how well low confidence detects each out-of-domain set, if there are any."""
    scores = out_of_domain_scores(table)
    for data in dict.fromkeys(row["data"] for row in scores):
        names = [name for name in scores[0] if name not in ("method", "data")]
        rows = [
            [_label(row["method"]), *(points(row[name]) for name in names)] for row in scores if row["data"] == data
        ]
        heads = ["method", *(METRICS[name].symbol for name in names)]
        console.print(plain_table(f"Detecting {shown(data)} by low confidence, in %", heads, rows))


def estimates_table(sets: Sequence[EstimatedSet], width: int) -> Group:
    """Return one row per test set: the claimed, the estimated and the true accuracy, drawn on a scale up to 100 %."""
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
