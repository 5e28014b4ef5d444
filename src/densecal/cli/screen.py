"""What the commands write: tables for people, JSON for machines, warnings as single lines."""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console, Group

    from densecal.evaluation import EvaluationTable
    from densecal.metrics import Interval

Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines instead of tables.")]

PIPE_WIDTH = 120
NARROW = 104
MOST_SETS = 20
FACTS_WIDTH, METHOD_WIDTH = 48, 14


def screen() -> Console:
    """Return the console for results; lines are not cut to 80 columns when they go into a pipe."""
    from rich.console import Console

    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=PIPE_WIDTH)


def print_json(data: Mapping[str, Any]) -> None:
    """Print JSON in which a number that does not exist is null."""
    typer.echo(json.dumps(_plain(data), indent=2, ensure_ascii=False))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


@contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """Collect densecal's warnings and show each once, as one line, when the work is done."""
    from densecal.errors import CalibrationWarning

    messages: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CalibrationWarning)
        yield messages
    for warning in caught:
        if issubclass(warning.category, CalibrationWarning):
            text = " ".join(str(warning.message).split())
            if text not in messages:
                messages.append(text)
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    show_warnings(messages)


def show_warnings(messages: Iterable[str]) -> None:
    """Show warnings as single lines on the standard error."""
    for text in messages:
        typer.secho("warning: ", fg=typer.colors.YELLOW, bold=True, nl=False, err=True)
        typer.echo(text, err=True)


def plain_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Group:
    """Return a title and a table whose first column is text and whose others are numbers."""
    from rich import box
    from rich.console import Group
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    for place, column in enumerate(columns):
        table.add_column(column, justify="right" if place else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return Group(f"[bold]{title}[/bold]", table, "")


def facts_table(title: str, metadata: Mapping[str, str]) -> Group:
    """Return a title and a table of names and values."""
    from rich.console import Group
    from rich.markup import escape
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for name, value in metadata.items():
        table.add_row(f"[dim]{name}[/dim]", escape(value))
    return Group(f"[bold]{escape(title)}[/bold]", table)


def severity_table(table: EvaluationTable, width: int) -> Group:
    """Return the ECE of every method in-domain, at each severity and overall, with intervals where there are any."""
    from rich.console import Group

    from densecal.calibrators.names import ORACLE, has_dac, method_label
    from densecal.report.words import INTERVALS_EXPLAINED

    levels: list[int | None] = [*table.severities, None] if len(table.severities) > 1 else [*table.severities]
    narrow = width < NARROW
    clean, severity = ("clean", "{}") if narrow else ("in-domain", "sev. {}")
    heads = ["ALL" if level is None else clean if level == 0 else severity.format(level) for level in levels]
    found = {method: [table.estimate(method, severity=level) for level in levels] for method in table.methods}
    real = [method for method in table.methods if method != ORACLE]
    best = [min(found[method][place].estimate for method in real) for place in range(len(levels))]
    intervals = f", with {table.level:.0%} intervals" if table.has_intervals else ""
    title = f"ECE in percentage points by severity{intervals} (lower is better)"
    rows = []
    for method, estimates in found.items():
        cells = [
            _cell(one, bold=method in real and one.estimate <= best[place], short=narrow)
            for place, one in enumerate(estimates)
        ]
        name = method_label(method)
        rows.append([f"[bold]{name}[/bold]" if has_dac(method) else name, *cells])
    found_table = plain_table(title, ["method", *heads], rows)
    return Group(found_table, f"[dim]{INTERVALS_EXPLAINED}[/dim]", "") if table.has_intervals else found_table


def _cell(found: Interval, *, bold: bool, short: bool) -> str:
    value = f"{100 * found.estimate:.1f}"
    value = f"[bold green]{value}[/bold green]" if bold else value
    if math.isnan(found.low):
        return value
    low, high = 100 * found.low, 100 * found.high
    reach = max(high - 100 * found.estimate, 100 * found.estimate - low)
    spread = f"±{reach:.1f}" if short else f"{low:.1f}–{high:.1f}"
    return f"{value}\n[dim]{spread}[/dim]"


def sets_table(table: EvaluationTable, width: int) -> Group:
    """Return one row a test set: how large it is, how accurate the classifier is there, and every method's ECE."""
    from rich.markup import escape

    from densecal.calibrators.names import method_label

    # A narrow terminal shows the classifier as it is and the methods named last, which the user gave.
    room = max(1, (width - FACTS_WIDTH) // METHOD_WIDTH - 1)
    methods = [table.methods[0], *table.methods[1:][-room:]]
    cells = []
    for place, condition in enumerate(table.conditions[:MOST_SETS]):
        share = table.values[table.methods[0], "accuracy"][place]
        values = [f"{100 * table.values[method, 'ece'][place]:.1f}" for method in methods]
        cells.append([escape(str(condition)), f"{len(condition.outputs):,}", f"{100 * share:.1f} %", *values])
    if len(table.conditions) > MOST_SETS:
        cells.append([f"... and {len(table.conditions) - MOST_SETS} more (--json)", *[""] * (2 + len(methods))])
    heads = ["test set", "samples", "accuracy", *(method_label(method) for method in methods)]
    return plain_table("Every test set, with each method's ECE in percentage points", heads, cells)


def measures_table(table: EvaluationTable) -> Group:
    """Return every measure of every method, averaged over severities."""
    from densecal.calibrators.names import method_label
    from densecal.report.tables import AS_POINTS, measure_name

    rows = []
    for method in table.methods:
        cells = []
        for measure in table.measures:
            value = table.estimate(method, measure).estimate
            cells.append(f"{100 * value:.1f} %" if measure in AS_POINTS else f"{value:.3f}")
        rows.append([method_label(method), *cells])
    one = "in-domain" if 0 in table.severities else f"at severity {table.severities[0]}"
    where = "mean over all severities" if len(table.severities) > 1 else one
    return plain_table(f"Every measure, {where}", ["method", *(measure_name(m) for m in table.measures)], rows)


def table_as_json(table: EvaluationTable) -> dict[str, Any]:
    """Return an evaluation as plain data: every row, severity means, overall means and the verdict."""
    from densecal.report.verdict import judge

    verdict = judge(table)
    return {
        "methods": list(table.methods),
        "severities": list(table.severities),
        "verdict": {"tone": verdict.tone, "text": verdict.headline, "details": list(verdict.details)},
        "by_severity": {measure: table.by_severity(measure).to_dict("records") for measure in table.measures},
        "overall": {measure: table.overall(measure).to_dict("records") for measure in table.measures},
        "rows": table.rows().to_dict("records"),
        "out_of_domain": out_of_domain_scores(table),
    }


def out_of_domain_scores(table: EvaluationTable) -> list[dict[str, Any]]:
    """Return how well each method's confidence tells in-domain from out-of-domain samples."""
    from densecal.metrics import ood_scores

    if not table.out_of_domain or 0 not in table.severities:
        return []
    return [
        {
            "method": method,
            "data": condition.name,
            **ood_scores(table.pooled(method, 0).confidence, table.judged[method, str(condition)].confidence).as_dict(),
        }
        for condition in table.out_of_domain
        for method in table.methods
        if (method, str(condition)) in table.judged
    ]


def out_of_domain_table(table: EvaluationTable) -> Group | None:
    """Return the out-of-domain scores as a table, if there are any."""
    from densecal.calibrators.names import method_label
    from densecal.metrics import METRICS

    scores = out_of_domain_scores(table)
    if not scores:
        return None
    names = [name for name in scores[0] if name not in ("method", "data")]
    several = len(table.out_of_domain) > 1
    rows = [
        [
            method_label(row["method"]) + (f", {row['data']}" if several else ""),
            *(f"{100 * row[name]:.1f}" for name in names),
        ]
        for row in scores
    ]
    unknown = "unknown data" if several else table.out_of_domain[0].name
    heads = ["method", *(METRICS[name].symbol for name in names)]
    return plain_table(f"Telling {unknown} from the known classes by low confidence, in %", heads, rows)
