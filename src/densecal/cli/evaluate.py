"""``densecal evaluate`` and ``densecal report``: evaluate calibrators on test sets, as tables or as an HTML report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from densecal.cli.engine import LOCAL, Address, Engine, Workers, open_engine
from densecal.cli.evaluation_inputs import check_options, read_inputs
from densecal.cli.file_options import FILES, reads_files
from densecal.cli.screen import (
    Json,
    metrics_table,
    open_console,
    print_json,
    print_out_of_domain_table,
    printable,
    sets_table,
    severity_table,
)
from densecal.io.file_layout import FileLayout

Calibrators = Annotated[
    list[str], typer.Argument(help="Calibrators written by `densecal fit`, as PATH or NAME=PATH.", show_default=False)
]
Data = Annotated[
    list[str],
    typer.Option(
        help=f"Labelled test sets, as PATH or NAME=PATH, repeatable: {FILES}. A folder of such files is one set per "
        "file; files named fog-3-00000-of-00002, ... are shards of one set, which may be larger than memory. The "
        "severity of the shift is read from the metadata of the file or from its name: fog-severity-3, fog-3 "
        "(a known corruption), or a series such as test-1, test-3."
    ),
]
OutOfDomain = Annotated[
    list[str] | None, typer.Option("--ood", help="Test sets whose samples belong to none of the classes, repeatable.")
]
Natural = Annotated[
    list[str] | None,
    typer.Option(
        help="Labelled test sets under a natural shift, of unknown severity, repeatable. Each has its own row in every "
        "table and is averaged with no other."
    ),
]
Validation = Annotated[
    list[Path] | None,
    typer.Option(
        "--val",
        help="The labelled validation set of the fit, in the same formats. For comparison, each method is also fitted "
        "on it without DAC (DAC alone becomes temperature scaling). Repeatable: files of one data set.",
    ),
]
IgnoreNames = Annotated[
    bool, typer.Option("--ignore-names", help="Read severities from metadata only, never from names.")
]
Oracle = Annotated[
    bool, typer.Option("--oracle", help="Add a temperature fitted on the labels of each test set, for reference.")
]
Resamples = Annotated[
    int | None,
    typer.Option(help="Number of bootstrap resamples: 300 by default, at least 20, or 0 for no intervals.", min=0),
]

SampleSize = Annotated[
    int | None,
    typer.Option(
        help="Intervals of larger sets, and what the report shows of single samples, are from so many random samples: "
        "50,000 by default.",
        min=1,
    ),
]


@reads_files
def evaluate(
    calibrators: Calibrators,
    data: Data,
    layout: FileLayout,
    natural: Natural = None,
    ood: OutOfDomain = None,
    val: Validation = None,
    ignore_names: IgnoreNames = False,
    oracle: Oracle = False,
    metric: Annotated[list[str] | None, typer.Option(help="A metric to show, repeatable.")] = None,
    resamples: Resamples = None,
    sample_size: SampleSize = None,
    engine: Engine = LOCAL,
    address: Address = None,
    workers: Workers = None,
    as_json: Json = False,
) -> None:
    """Compare calibrated with uncalibrated confidences on test sets, with bootstrap intervals."""
    from densecal.evaluation.test_sets import severity_line
    from densecal.report.verdict import judge

    check_options(metric, resamples)
    inputs = read_inputs(
        calibrators,
        {"data": data, "natural": natural, "ood": ood},
        val,
        severity_from_names=not ignore_names,
        layout=layout,
    )
    with open_engine(engine, address, workers) as on_ray:
        options = {"oracle": oracle, "n_resamples": resamples, "sample_size": sample_size}
        table = inputs.evaluate(metric, **options, mapper=None if on_ray is None else on_ray.map_tasks)
    if as_json:
        print_json(inputs.as_json(table))
        return
    console = open_console()
    console.print(severity_table(table, console.width))
    console.print(metrics_table(table))
    console.print(sets_table(table, console.width))
    console.print(printable(severity_line(inputs.sets)) + "\n", markup=False, style="dim")
    print_out_of_domain_table(console, table)
    console.print(printable(judge(table).headline), markup=False)


@reads_files
def report(
    calibrators: Calibrators,
    data: Data,
    layout: FileLayout,
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML page to write.")] = Path("report.html"),
    natural: Natural = None,
    ood: OutOfDomain = None,
    val: Validation = None,
    ignore_names: IgnoreNames = False,
    oracle: Oracle = False,
    title: Annotated[str, typer.Option(help="The heading of the page.")] = "Can these confidences be trusted?",
    resamples: Resamples = None,
    sample_size: SampleSize = None,
    as_json: Json = False,
) -> None:
    """Write a self-contained HTML report on how well confidences are calibrated."""
    from densecal.evaluation.test_sets import severity_line
    from densecal.io.files import check_output_file
    from densecal.report import judge, write_report

    check_output_file(output)
    check_options(None, resamples)
    inputs = read_inputs(
        calibrators,
        {"data": data, "natural": natural, "ood": ood},
        val,
        severity_from_names=not ignore_names,
        layout=layout,
    )
    table = inputs.evaluate(oracle=oracle, n_resamples=resamples, sample_size=sample_size)
    write_report(
        output,
        inputs.calibrators,
        inputs.conditions,
        title=title,
        table=table,
        validation=inputs.validation,
        warnings=inputs.warnings,
    )
    if as_json:
        print_json({"report": output, **inputs.as_json(table)})
        return
    console = open_console()
    console.print(printable(severity_line(inputs.sets)), markup=False, style="dim")
    console.print(printable(judge(table).headline), markup=False)
    console.print(printable(f"written to {output}"), markup=False, style="dim")
