"""``python -m reproduction``: the paper's tables and figures by name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from densecal.cli.app import main as run_command
from densecal.cli.app import open_console, print_json, print_values
from densecal.cli.inputs import Json, SingleValueCommand
from densecal.cli.tables import plain_table

if TYPE_CHECKING:
    import pandas as pd

    from reproduction.check import Comparison
    from reproduction.experiments import Reproduction

EVERYTHING = "all"
MOST_ROWS = 60

app = typer.Typer(pretty_exceptions_enable=False, rich_markup_mode="rich", add_completion=False)


@app.command(cls=SingleValueCommand, epilog="Example: python -m reproduction table1 --rows c10-resnet18")
def reproduce(
    names: Annotated[
        list[str] | None, typer.Argument(help="Names of tables and figures, or all; without a name, list them.")
    ] = None,
    rows: Annotated[
        list[str] | None, typer.Option(help="Classifiers, repeatable or comma-separated; by default all measured ones.")
    ] = None,
    results: Annotated[Path, typer.Option(help="Folder with measurements/ and tables/.")] = Path("results"),
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A folder for the tables (CSV) and figures (SVG).")
    ] = None,
    figures: Annotated[Path | None, typer.Option(help="Another folder for the figures.")] = None,
    check: Annotated[
        bool, typer.Option(help="Compare the tables with those in RESULTS/tables, made with 200 resamples.")
    ] = False,
    data: Annotated[
        Path | None, typer.Option(help="Folder of the data set, to train and measure classifiers without measurements.")
    ] = None,
    weights: Annotated[Path | None, typer.Option(help="Weights of the network, if one classifier is measured.")] = None,
    device: Annotated[str | None, typer.Option(help="Device for training and measuring: cpu, cuda, ...")] = None,
    resamples: Annotated[
        int | None, typer.Option(help="Number of bootstrap resamples: by default 200, 0 for no intervals.", min=0)
    ] = None,
    as_json: Json = False,
) -> None:
    """Make the paper's tables and figures from measurements of its classifiers."""
    from reproduction import experiments
    from reproduction.check import Comparison, check_committed, compare
    from reproduction.protocol import N_RESAMPLES

    if not names:
        titles = {name: one.title for name, one in experiments.EXPERIMENTS.items()}
        print_json({"experiments": titles}) if as_json else print_values("Tables and figures", titles)
        return
    chosen = list(experiments.EXPERIMENTS) if names == [EVERYTHING] else names
    n_resamples = N_RESAMPLES if resamples is None else resamples
    protocol = experiments.protocol_for(chosen, results, n_resamples=n_resamples)
    classifiers = [row for given in rows or [] for row in given.split(",")]
    for row in classifiers:
        if data is not None and row not in protocol.classifiers:
            experiments.prepare(row, data, weights=weights, results=results, device=device)
    records: list[dict[str, Any]] = []
    compared = [Comparison(check_committed(results), 0)] if check else []
    for name in chosen:
        if names == [EVERYTHING] and not classifiers and not experiments.rows_of(name, protocol):
            continue
        made = experiments.reproduce(name, classifiers, protocol=protocol)
        compared += [compare(made, results, n_resamples)] if check else []
        # A figure without a table is always written to a file.
        folder = output or (Path() if made.table is None else None)
        written = made.save(folder, figures) if folder is not None else []
        records.append({"name": name, "title": made.title, "legend": made.legend, "rows": _records(made.table)})
        records[-1]["written"] = list(map(str, written))
        if not as_json:
            _show(made, written, chosen_folder=output is not None)
    if as_json:
        print_json({"reproduced": records})
    if check:
        _conclude(compared, results / "tables", as_json=as_json)


def _conclude(compared: list[Comparison], tables: Path, *, as_json: bool) -> None:
    """Raise if values differ from the committed tables, or say that they match."""
    problems = [problem for one in compared for problem in one.problems]
    if problems:
        raise ValueError(f"{len(problems)} values differ from {tables}: {'; '.join(problems[:5])}")
    within = sum(one.within_refits for one in compared)
    if not as_json:
        found = f"All values and intervals match {tables}, {within} of them (DIA, PTS) within the spread of refits."
        open_console().print(found)


def _records(table: pd.DataFrame | None) -> list[dict[str, Any]]:
    return [] if table is None else [{str(k): v for k, v in row.items()} for row in table.to_dict("records")]


def _show(made: Reproduction, written: list[Path], *, chosen_folder: bool) -> None:
    console = open_console()
    if made.table is None or chosen_folder:
        console.print(f"[bold]{made.title}[/bold]")
    else:
        cells = table_cells(made.name, made.table.head(MOST_ROWS))
        console.print(plain_table(made.title, [str(column) for column in made.table.columns], cells))
        if len(made.table) > MOST_ROWS:
            console.print(f"[dim]... and {len(made.table) - MOST_ROWS} more rows: write them with -o FOLDER.[/dim]")
        for line in made.legend:
            console.print(line, style="dim", markup=False)
    for path in written:
        where = "" if chosen_folder else " [dim](-o FOLDER writes elsewhere)[/dim]"
        console.print(f"[dim]written to[/dim] {path if chosen_folder else path.resolve()}{where}", soft_wrap=True)


def table_cells(name: str, table: pd.DataFrame) -> list[list[str]]:
    """Format a table with a fixed number of digits per column; * marks a paper's value outside our interval."""
    from reproduction.page.tables import number

    compared = "paper" in table.columns
    digits = {str(column): _digits(name, table[column], compared=compared) for column in table.columns}
    lines = []
    for row in _records(table):
        cells = {c: str(v) if isinstance(v, (str, int)) else number(v, digits[c]) for c, v in row.items()}
        if compared and row["paper"] is not None and (row["paper"] < row["low"] or row["paper"] > row["high"]):
            # The mark precedes the number to keep the digits aligned.
            cells["paper"] = "*" + cells["paper"]
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


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return run_command(arguments, command=app, name="python -m reproduction")


if __name__ == "__main__":
    raise SystemExit(main())
