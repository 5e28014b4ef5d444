"""``densecal demo``: compare calibration methods on bundled data."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from densecal.cli.app import open_console, print_json, shown
from densecal.cli.inputs import Json, check_outputs
from densecal.cli.tables import plain_table, print_out_of_domain_table, severity_table, table_as_json

if TYPE_CHECKING:
    from rich.console import Group

    from densecal.report.estimates import EstimatedSet

CLAIM, ESTIMATE, TRUTH, RANGE = "○", "●", "◆", "─"
WIDTH_OF_COLUMNS = 64
WIDEST_PICTURE, NARROWEST_PICTURE = 50, 20


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML report to write.")] = Path("report.html"),
    as_json: Json = False,
    folder: Annotated[Path | None, typer.Option("--data", hidden=True, help="Other data in the demo's layout.")] = None,
) -> None:
    """Compare calibration methods with and without DAC, from clean to strongly shifted data."""
    from densecal.demo import DATA, run_demo
    from densecal.io.files import check_output_file
    from densecal.report import judge, write_report
    from densecal.report.estimates import estimate_sets, summarise

    check_output_file(output)
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
        found = {"estimates": [one.to_dict() for one in sets], **table_as_json(table), "warnings": result.warnings}
        print_json({"report": output, "seconds": seconds, **found})
        return
    from rich.markup import escape

    console = open_console()
    metadata = demo_data.validation.metadata
    source = ", ".join(metadata[key] for key in ("classifier", "data") if key in metadata)
    console.print(f"[dim]{escape(source)}: fitted on {len(demo_data.validation):,} validation samples.[/dim]\n")
    if sets:
        console.print(_estimates_table(sets, console.width))
        console.print(f"[bold]{summarise(sets)}[/bold]\n")
    console.print(severity_table(table, console.width))
    print_out_of_domain_table(console, table)
    console.print(f"[bold]{verdict.headline}[/bold]")
    console.print(f"\n[dim]Report with figures:[/dim] {escape(str(output))} [dim]({seconds:.0f} s)[/dim]")


def _estimates_table(sets: Sequence[EstimatedSet], width: int) -> Group:
    """Return one row per test set: the claimed, the estimated and the true accuracy, drawn on a scale up to 100 %."""
    from densecal.display import percent

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
