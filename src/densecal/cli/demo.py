"""``densecal demo``: compare calibration methods on bundled data."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from densecal.cli.app import open_console, print_json
from densecal.cli.inputs import Json, check_outputs


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML report to write.")] = Path("report.html"),
    as_json: Json = False,
    folder: Annotated[Path | None, typer.Option("--data", hidden=True, help="Other data in the demo's layout.")] = None,
) -> None:
    """Compare calibration methods with and without DAC, from clean to strongly shifted data."""
    from rich.markup import escape

    from densecal.cli.tables import estimates_table, print_out_of_domain_table, severity_table, table_as_json
    from densecal.demo import DATA, run_demo
    from densecal.report import judge, write_report
    from densecal.report.estimates import estimate_sets, summarise

    check_outputs({"--output": output}, {"--data": sorted((folder or DATA).glob("*"))})
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
    )
    verdict = judge(table)
    sets = estimate_sets(table, result.calibrators, verdict.method)
    seconds = time.perf_counter() - start
    if as_json:
        found = {**table_as_json(table, result.calibrators), "warnings": result.warnings}
        print_json({"report": output, "seconds": seconds, **found})
        return
    console = open_console()
    metadata = demo_data.validation.metadata
    source = ", ".join(metadata[key] for key in ("classifier", "data") if key in metadata)
    console.print(f"[dim]{escape(source)}: fitted on {len(demo_data.validation):,} validation samples.[/dim]\n")
    if sets:
        console.print(estimates_table(sets, console.width))
        console.print(f"[bold]{summarise(sets)}[/bold]\n")
    console.print(severity_table(table, console.width))
    print_out_of_domain_table(console, table)
    console.print(f"[bold]{verdict.headline}[/bold]")
    console.print(f"\n[dim]Report with figures:[/dim] {escape(str(output))} [dim]({seconds:.0f} s)[/dim]")
