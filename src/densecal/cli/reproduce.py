"""``densecal reproduce``: the paper's tables and figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from densecal.cli.screen import Json, facts_table, plain_table, print_json, screen

if TYPE_CHECKING:
    import pandas as pd

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
    results: Annotated[Path, typer.Option(help="The folder that holds the measurements.")] = Path("results"),
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A folder to write the tables (CSV) and figures (SVG) into.")
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
    from densecal.paper.reproduction import EXPERIMENTS
    from densecal.paper.reproduction import reproduce as run

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
            {"name": name, "title": made.title, "rows": _records(made.table), "written": list(map(str, written))}
        )
        if not as_json:
            _show(made.title, made.table, written)
    if as_json:
        print_json({"reproduced": told})


def _records(table: pd.DataFrame | None) -> list[dict[str, Any]]:
    return [] if table is None else [{str(k): v for k, v in row.items()} for row in table.to_dict("records")]


def _show(title: str, table: pd.DataFrame | None, written: list[Path]) -> None:
    console = screen()
    if table is not None:
        cells = [[_cell(value) for value in row.values()] for row in _records(table)]
        console.print(plain_table(title, [str(column) for column in table.columns], cells[:MOST_ROWS]))
        if len(cells) > MOST_ROWS:
            console.print(f"[dim]... and {len(cells) - MOST_ROWS} rows more: write them with -o FOLDER.[/dim]")
    for path in written:
        console.print(f"[dim]written to[/dim] {path}")


def _cell(value: Any) -> str:
    if value is None or (isinstance(value, float) and value != value):
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
