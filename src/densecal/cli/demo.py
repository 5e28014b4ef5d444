"""``densecal demo``: what densecal is for, on data inside the package."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from densecal.cli.screen import Json, out_of_domain_table, print_json, screen, severity_table, table_as_json


def add_to(app: typer.Typer) -> None:
    """Add the command to the app."""
    app.command(epilog="Example: densecal demo -o report.html")(demo)


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the page.")] = Path("report.html"),
    as_json: Json = False,
    folder: Annotated[Path | None, typer.Option("--data", hidden=True, help="Other data in the demo's layout.")] = None,
) -> None:
    """Show on data inside the package what calibration does, and what DAC adds when the data moves."""
    from densecal.demo.data_sets import DATA
    from densecal.demo.run import run_demo
    from densecal.report import judge, write_report

    start = time.perf_counter()
    result = run_demo(folder or DATA)
    table, demo_data = result.table, result.demo
    write_report(
        output,
        result.calibrators,
        demo_data.conditions,
        title="Can this classifier's confidences be trusted?",
        table=table,
        validation=demo_data.validation,
        warnings=result.warnings,
        metadata={"Bank": f"{len(demo_data.train):,} training samples, k = {demo_data.k}"},
    )
    seconds = time.perf_counter() - start
    if as_json:
        print_json({"report": output, "seconds": seconds, **table_as_json(table), "warnings": result.warnings})
        return
    console = screen()
    metadata = demo_data.validation.metadata
    about = ", ".join(metadata[key] for key in ("classifier", "data") if key in metadata)
    console.print(f"[dim]{about}: fitted on {len(demo_data.validation):,} validation samples.[/dim]\n")
    console.print(severity_table(table, console.width))
    unknown = out_of_domain_table(table)
    if unknown is not None:
        console.print(unknown)
    console.print(f"[bold]{judge(table).headline}[/bold]")
    console.print(f"\n[dim]The whole story, with pictures:[/dim] {output} [dim]({seconds:.0f} s)[/dim]")
