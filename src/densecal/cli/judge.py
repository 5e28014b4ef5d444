"""``densecal evaluate`` and ``densecal report``: how honest calibrators are, in a terminal and on a page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from densecal.cli.screen import (
    Json,
    collected_warnings,
    measures_table,
    out_of_domain_table,
    print_json,
    screen,
    sets_table,
    severity_table,
    table_as_json,
)
from densecal.evaluation.test_sets import (
    FILES,
    GivenSet,
    about,
    check_sets,
    read_labelled,
    read_sets,
    sets_as_json,
    severity_line,
)

if TYPE_CHECKING:
    from densecal.calibrators.base import Calibrator
    from densecal.evaluation import Condition
    from densecal.outputs import Outputs

Calibrators = Annotated[
    list[str], typer.Argument(help="Calibrators that `densecal fit` wrote, as PATH or NAME=PATH.", show_default=False)
]
Data = Annotated[
    list[str],
    typer.Option(
        help=f"Labelled test sets, as PATH or NAME=PATH, repeatable: {FILES}; a folder of several files is several "
        "sets. The severity of the shift comes from the metadata in a file, or from a name such as fog-severity-3 or, for "
        "the known corruptions, fog-3; test-1 beside test-3 are severities too, any other name is not."
    ),
]
OutOfDomain = Annotated[
    list[str] | None, typer.Option("--ood", help="Data that belong to none of the classes, repeatable.")
]
Validation = Annotated[
    Path | None,
    typer.Option(
        "--val",
        help="The labelled validation set of the fit, in the same formats: the same methods without DAC are fitted on "
        "it, to compare with (for DAC alone temperature scaling, which is DAC with one temperature for all).",
    ),
]
Oracle = Annotated[
    bool, typer.Option("--oracle", help="Add a temperature fitted on each test set's own labels, as a bound.")
]
Resamples = Annotated[
    int, typer.Option(help="Bootstrap resamples behind the intervals, at least 20; 0 for none.", min=0)
]


def add_to(app: typer.Typer) -> None:
    """Add the commands to the app."""
    app.command(epilog="Example: densecal evaluate cal.densecal --data clean.safetensors --data fog-3.safetensors")(
        evaluate
    )
    app.command(epilog="Example: densecal report cal.densecal --data tests/ --val val.safetensors -o report.html")(
        report
    )


def evaluate(
    calibrators: Calibrators,
    data: Data,
    ood: OutOfDomain = None,
    val: Validation = None,
    oracle: Oracle = False,
    measure: Annotated[list[str] | None, typer.Option(help="Measures to show, repeatable.")] = None,
    resamples: Resamples = 300,
    as_json: Json = False,
) -> None:
    """Measure how honest calibrated and uncalibrated confidences are, with bootstrap intervals."""
    from densecal.evaluation import MEASURES, evaluate_conditions
    from densecal.report.verdict import judge

    fitted, conditions, sets, _, messages = _gather(calibrators, data, ood, val)
    # ECE, accuracy and mean confidence carry the table and the verdict.
    measures = list(dict.fromkeys((*MEASURES[:3], *(measure or MEASURES))))
    table = evaluate_conditions(fitted, conditions, measures=measures, oracle=oracle, resamples=resamples)
    if as_json:
        print_json({**table_as_json(table), "sets": sets_as_json(sets), "warnings": messages})
        return
    console = screen()
    console.print(severity_table(table, console.width))
    console.print(measures_table(table))
    console.print(sets_table(table, console.width))
    console.print(severity_line(sets) + "\n", markup=False, style="dim")
    unknown = out_of_domain_table(table)
    if unknown is not None:
        console.print(unknown)
    console.print(judge(table).headline)


def report(
    calibrators: Calibrators,
    data: Data,
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write the page.")] = Path("report.html"),
    ood: OutOfDomain = None,
    val: Validation = None,
    oracle: Oracle = False,
    title: Annotated[str, typer.Option(help="The page's heading.")] = "Can these confidences be trusted?",
    resamples: Resamples = 300,
    as_json: Json = False,
) -> None:
    """Write one self-contained HTML page about how far confidences can be trusted."""
    from densecal.evaluation import evaluate_conditions
    from densecal.io.storage import check_no_folder
    from densecal.report import judge, write_report

    check_no_folder(output)
    fitted, conditions, sets, validation, messages = _gather(calibrators, data, ood, val)
    table = evaluate_conditions(fitted, conditions, oracle=oracle, resamples=resamples)
    write_report(output, fitted, conditions, title=title, table=table, validation=validation, warnings=messages)
    verdict = judge(table)
    if as_json:
        print_json(
            {
                "report": output,
                "verdict": {"tone": verdict.tone, "text": verdict.headline},
                "sets": sets_as_json(sets),
                "warnings": messages,
            }
        )
        return
    console = screen()
    console.print(severity_line(sets), markup=False, style="dim")
    console.print(verdict.headline)
    console.print(f"[dim]written to[/dim] {output}")


def _gather(
    calibrators: list[str], data: list[str], ood: list[str] | None, val: Path | None
) -> tuple[dict[str, Calibrator], list[Condition], list[GivenSet], Outputs | None, list[str]]:
    """Read calibrators and sets, fit the counterparts without DAC, and measure each distance once."""
    from densecal.evaluation import bank_of, measure_distances

    fitted, messages = _read_calibrators(calibrators)
    with collected_warnings() as fresh:
        sets = read_sets(data)
        if ood:
            sets += read_sets(ood, out_of_domain=True)
        check_sets(sets, fitted.values())
        validation = None
        if val is not None:
            validation = read_labelled(val, "the methods without DAC cannot be fitted on it.")
            _check_classes(validation, val, sets[0])
            fitted = {**_without_density(fitted, validation, val), **fitted}
    messages += fresh
    conditions = [one.condition for one in sets]
    banks = {id(bank): bank for calibrator in fitted.values() if (bank := bank_of(calibrator)) is not None}
    if len(banks) == 1:
        # All calibrators share a bank, so that each set is searched once.
        conditions = measure_distances(conditions, next(iter(banks.values())))
    return fitted, conditions, sets, validation, messages


def _check_classes(validation: Outputs, path: Path, tested: GivenSet) -> None:
    here, there = validation.n_classes, tested.condition.outputs.n_classes
    if here != there:
        raise ValueError(f"{path} has {here} classes, but {tested.path} has {there}: they are not of one classifier.")


def _read_calibrators(sources: list[str]) -> tuple[dict[str, Calibrator], list[str]]:
    """Read calibrators by name, and what their fits warned of."""
    from densecal.evaluation import method_name
    from densecal.io import storage
    from densecal.io.artefact import load

    fitted: dict[str, Calibrator] = {}
    messages: list[str] = []
    for source in sources:
        name, _, after = source.partition("=")
        path = Path(after) if after and not Path(source).exists() else Path(source)
        calibrator = load(path)
        name = name if path == Path(after) else method_name(calibrator)
        if name in fitted:
            name = path.stem
        if name in fitted:
            raise ValueError(f"Two calibrators are both called {name!r}. Give them names: first=PATH second=PATH.")
        fitted[name] = calibrator
        messages += storage.read(path)[0].get("metadata", {}).get("warnings", [])
    return fitted, messages


def _without_density(fitted: dict[str, Calibrator], validation: Outputs, path: Path) -> dict[str, Calibrator]:
    """Fit each method that follows DAC by itself, so that the report can say what DAC adds."""
    from densecal.calibrators.names import UNCALIBRATED, base_method, has_dac
    from densecal.calibrators.registry import METHODS, make_calibrator

    found: dict[str, Any] = {}
    for name in fitted:
        # DAC with a single temperature for all samples is temperature scaling.
        base = "ts" if base_method(name) == UNCALIBRATED else base_method(name)
        known = all(part in METHODS for part in base.split("+"))
        if has_dac(name) and base not in fitted and known:
            with about(path):
                found[base] = make_calibrator(base).fit(validation.logits, validation.labels)
    return found
