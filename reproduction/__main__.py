"""``densecal reproduce``: the paper's tables and figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from densecal.cli.screen import Json, facts_table, plain_table, print_json, screen

if TYPE_CHECKING:
    import pandas as pd

    from reproduction.reproduction import Reproduction

EVERYTHING = "all"
MOST_ROWS = 60


def add_to(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command(epilog="Example: densecal reproduce table1 --rows c10-resnet18")(reproduce)


def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(help="Tables and figures by name, or all; without a name they are listed.")
    ] = None,
    rows: Annotated[
        list[str] | None, typer.Option(help="Classifiers, repeatable or separated by commas; else all measured ones.")
    ] = None,
    results: Annotated[
        Path, typer.Option(help="The folder that holds measurements/, and keeps results in cache/.")
    ] = Path("results"),
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="A folder to write the tables (CSV) and figures (SVG) into; without it a table is shown, and what is "
            "only a figure goes to the current folder.",
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="Your copy of the data set: rows not measured yet are measured (and trained) first."),
    ] = None,
    weights: Annotated[Path | None, typer.Option(help="The network's weights, for the one row to measure.")] = None,
    device: Annotated[str | None, typer.Option(help="Where to train and measure: cpu, cuda, ...")] = None,
    resamples: Annotated[int, typer.Option(help="Bootstrap resamples behind the intervals; 0 for none.", min=0)] = 300,
    as_json: Json = False,
) -> None:
    """Make the paper's tables and figures from a classifier's measurements."""
    from reproduction.reproduction import EXPERIMENTS
    from reproduction.reproduction import reproduce as run

    if not names:
        listed = {name: experiment.title for name, experiment in EXPERIMENTS.items()}
        if as_json:
            print_json({"experiments": listed})
        else:
            screen().print(facts_table("Tables and figures", listed))
        return
    chosen = list(EXPERIMENTS) if names == [EVERYTHING] else names
    unknown = [name for name in chosen if name not in EXPERIMENTS]
    if unknown:
        raise ValueError(f"There is no table or figure {unknown[0]!r}; there are {', '.join(EXPERIMENTS)}.")
    classifiers = [row for given in rows or [] for row in given.split(",")] or None
    told: list[dict[str, Any]] = []
    for name in chosen:
        made = run(name, classifiers, results=results, data=data, weights=weights, device=device, resamples=resamples)
        # A figure alone has to go somewhere.
        folder = output or (Path() if made.table is None else None)
        written = made.save(folder) if folder is not None else []
        told.append(
            {
                "name": name,
                "title": made.title,
                "legend": made.legend,
                "rows": _records(made.table),
                "written": list(map(str, written)),
                "cache": {"folder": made.cache, "judged": made.judged, "reread": made.reread},
            }
        )
        if not as_json:
            _show(made, written, chosen_folder=output is not None)
    if as_json:
        print_json({"reproduced": told})


def _records(table: pd.DataFrame | None) -> list[dict[str, Any]]:
    return [] if table is None else [{str(k): v for k, v in row.items()} for row in table.to_dict("records")]


def _show(made: Reproduction, written: list[Path], *, chosen_folder: bool) -> None:
    console = screen()
    if made.table is None:
        console.print(f"[bold]{made.title}[/bold]")
    else:
        cells = table_cells(made.name, made.table)
        console.print(plain_table(made.title, [str(column) for column in made.table.columns], cells[:MOST_ROWS]))
        if len(cells) > MOST_ROWS:
            console.print(f"[dim]... and {len(cells) - MOST_ROWS} rows more: write them with -o FOLDER.[/dim]")
        for line in made.legend:
            console.print(line, style="dim", markup=False)
    for path in written:
        where = "" if chosen_folder else " [dim](-o FOLDER writes elsewhere)[/dim]"
        console.print(f"[dim]written to[/dim] {path.resolve() if not chosen_folder else path}{where}", soft_wrap=True)
    if made.judged or made.reread:
        console.print(_cache_line(made), style="dim", markup=False, soft_wrap=True)


def _cache_line(made: Reproduction) -> str:
    from densecal.report.words import counted

    if not made.judged:
        return f"Read back from {made.cache}: {counted(made.reread, 'result')}; delete it to judge them anew."
    again = f", {made.reread:,} read back from there" if made.reread else ""
    return f"{counted(made.judged, 'result')} judged and kept in {made.cache}{again}: the next run reads them."


def table_cells(name: str, table: pd.DataFrame) -> list[list[str]]:
    """Write a table's values, every column with the same number of digits; * marks a paper's value off our interval."""
    from reproduction.legends import outside

    compared = "paper" in table.columns
    digits = {str(column): _digits(name, table[column], compared=compared) for column in table.columns}
    lines = []
    for row in _records(table):
        cells = {column: _cell(value, digits[column]) for column, value in row.items()}
        if compared:
            number = float("nan") if row["paper"] is None else row["paper"]
            # Before the number, so that the digits stay below each other.
            cells["paper"] = ("*" if outside(number, row["low"], row["high"]) else "") + cells["paper"]
        lines.append(list(cells.values()))
    return lines


def _digits(name: str, column: pd.Series[Any], *, compared: bool) -> int:
    if compared:
        return 4 if name in ("brier", "nll") else 2
    if column.dtype.kind != "f":
        return 0
    there = column.dropna()
    if (there == there.round()).all():
        return 0
    return 4 if there.abs().max() < 10 else 1


def _cell(value: Any, digits: int) -> str:
    if value is None or (isinstance(value, float) and value != value):
        return "–"
    return f"{value:.{digits}f}" if isinstance(value, float) else str(value)
