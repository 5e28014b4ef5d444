"""``densecal evaluate`` and ``densecal report``: evaluate calibrators on test sets, as tables or as an HTML report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from densecal.cli.app import collect_warnings, open_console, print_json, printable
from densecal.cli.inputs import (
    FILES,
    EngineOptions,
    FileOptions,
    Json,
    check_different,
    check_outputs,
    expand,
    read_validation,
    usage_errors,
    with_options,
)
from densecal.errors import warn_user
from densecal.io.atomic_files import listed, name_file_in_errors, split_name

if TYPE_CHECKING:
    from densecal.calibrators.base import Calibrator
    from densecal.evaluation import EvaluationTable
    from densecal.evaluation.test_sets import LoadedSet
    from densecal.io.output_files import FileLayout
    from densecal.outputs import Outputs

SAMPLES_CHECKED = 16
"""Number of samples used to check that test sets are compatible with the calibrators."""


@dataclass(frozen=True)
class EvaluationOptions:
    """The options of both commands."""

    calibrators: Annotated[
        list[str],
        typer.Argument(help="Calibrators written by `densecal fit`, as PATH or NAME=PATH.", show_default=False),
    ]
    data: Annotated[
        list[str],
        typer.Option(
            help=f"Labelled test sets, as PATH or NAME=PATH, repeatable: {FILES}. A folder of such files is one set "
            "per file; files named fog-3-00000-of-00002, ... are shards of one set, which may be larger than memory. "
            "The severity of the shift is read from the metadata of the file or from its name: fog-severity-3, fog-3 "
            "(a known corruption), or a series such as rain-1, rain-3 of numbers up to 5, but not week-1, week-2."
        ),
    ]
    natural: Annotated[
        list[str] | None,
        typer.Option(
            help="Labelled test sets under a natural shift, of unknown severity, repeatable. Each has its own row in "
            "every table and is not averaged with other sets."
        ),
    ] = None
    ood: Annotated[
        list[str] | None,
        typer.Option("--ood", help="Test sets whose samples belong to none of the classes, repeatable."),
    ] = None
    val: Annotated[
        list[Path] | None,
        typer.Option(
            "--val",
            help="The labelled validation set of the fit, in the same formats. For comparison, each method is also "
            "fitted on it without DAC (DAC alone becomes temperature scaling). Repeat for several files of one set.",
        ),
    ] = None
    ignore_names: Annotated[
        bool, typer.Option("--ignore-names", help="Read severities from metadata only, never from names.")
    ] = False
    oracle: Annotated[
        bool, typer.Option("--oracle", help="Add a temperature fitted on the labels of each test set, for reference.")
    ] = False
    resamples: Annotated[
        int | None,
        typer.Option(help="Number of bootstrap resamples: 300 by default, at least 20, or 0 for no intervals.", min=0),
    ] = None
    sample_size: Annotated[
        int | None,
        typer.Option(
            help="Compute the intervals and the distributions of larger sets from this many random samples: 50,000 by "
            "default.",
            min=1,
        ),
    ] = None

    def files(self) -> dict[str, list[Path]]:
        """Return the files of each argument and option; raise if an option names a data file twice."""
        fitted = [split_name(one)[1] for one in self.calibrators]
        sets = {"--data": self.data, "--natural": self.natural, "--ood": self.ood}
        found = {name: expand(name, [split_name(one)[1] for one in given or []]) for name, given in sets.items()}
        return {"the calibrator": fitted, **found, "--val": expand("--val", self.val or [])}


@with_options
def evaluate(
    options: EvaluationOptions,
    files: FileOptions,
    run_on: EngineOptions,
    metric: Annotated[list[str] | None, typer.Option(help="Metric to show, such as ece or brier; repeatable.")] = None,
    as_json: Json = False,
) -> None:
    """Compare calibrated with uncalibrated confidences on test sets, with bootstrap intervals."""
    from densecal.cli.tables import metrics_table, print_out_of_domain_table, sets_table, severity_table
    from densecal.evaluation.test_sets import severity_line
    from densecal.report.verdict import judge

    found = _evaluate(options, files.layout(), metric or [], run_on)
    if as_json:
        print_json(found.as_json())
        return
    console, table = open_console(), found.table
    console.print(severity_table(table, console.width))
    console.print(metrics_table(table))
    console.print(sets_table(table, console.width))
    console.print(printable(severity_line(found.sets)) + "\n", markup=False, style="dim")
    print_out_of_domain_table(console, table)
    console.print(printable(judge(table).headline), markup=False)


@with_options
def report(
    options: EvaluationOptions,
    files: FileOptions,
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML page to write.")] = Path("report.html"),
    title: Annotated[str, typer.Option(help="The heading of the page.")] = "Can these confidences be trusted?",
    as_json: Json = False,
) -> None:
    """Write a self-contained HTML report on how well confidences are calibrated."""
    from densecal.evaluation.test_sets import severity_line
    from densecal.report import judge, write_report

    check_outputs({"--output": output}, options.files())
    found = _evaluate(options, files.layout())
    write_report(
        output,
        found.calibrators,
        [one.condition for one in found.sets],
        title=title,
        table=found.table,
        validation=found.validation,
        warnings=found.warnings,
    )
    if as_json:
        print_json({"report": output, **found.as_json()})
        return
    console = open_console()
    console.print(printable(severity_line(found.sets)), markup=False, style="dim")
    console.print(printable(judge(found.table).headline), markup=False)
    console.print(printable(f"written to {output}"), markup=False, style="dim")


@dataclass(frozen=True)
class _Evaluation:
    calibrators: dict[str, Calibrator]
    sets: list[LoadedSet]
    validation: Outputs | None
    table: EvaluationTable
    warnings: list[str]

    def as_json(self) -> dict[str, Any]:
        """Return the evaluation, the test sets and the warnings as plain data."""
        from densecal.cli.tables import table_as_json

        sets = [one.to_dict() for one in self.sets]
        return {**table_as_json(self.table, self.calibrators), "sets": sets, "warnings": self.warnings}


def _evaluate(
    options: EvaluationOptions, layout: FileLayout, metrics: Sequence[str] = (), run_on: EngineOptions | None = None
) -> _Evaluation:
    """Evaluate the calibrators, and the methods without DAC fitted on the validation set, on the test sets."""
    from densecal.cli.calibrator_files import read_calibrators
    from densecal.evaluation import evaluate_conditions
    from densecal.evaluation.evaluate import check_resamples, find_metrics
    from densecal.evaluation.test_sets import check_unique, read_sets
    from densecal.report.verdict import NEEDED_METRICS

    with usage_errors():
        find_metrics(metrics)
        check_resamples(options.resamples or 0, ["ece"])
    paths = options.files()["--val"]
    fitted, of_fits, layout = read_calibrators(options.calibrators, layout)
    given = {"n_resamples": options.resamples, "sample_size": options.sample_size}
    chosen: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    if metrics:
        chosen["metrics"] = list(dict.fromkeys((*NEEDED_METRICS, *metrics)))
    with collect_warnings() as messages:
        named: dict[str, Any] = {"severity_from_names": not options.ignore_names, "layout": layout}
        sets = read_sets(options.data, **named)
        if options.natural:
            sets += read_sets(options.natural, natural=True, **named)
        if options.ood:
            sets += read_sets(options.ood, out_of_domain=True, **named)
        check_unique(sets)
        _check_sets(sets, list(fitted.values()))
        _warn_out_of_domain(sets, metrics)
        validation = None
        if paths:
            name = listed(paths)
            validation, _ = read_validation(paths, layout)
            _check_validation(validation, name, sets)
            fitted = {**_fit_without_dac(fitted, validation, name), **fitted}
        with (run_on or EngineOptions()).open() as on_ray:
            chosen["mapper"] = None if on_ray is None else on_ray.map_tasks
            table = evaluate_conditions(fitted, [one.condition for one in sets], oracle=options.oracle, **chosen)
    return _Evaluation(fitted, sets, validation, table, of_fits + messages)


def _warn_out_of_domain(sets: list[LoadedSet], metrics: Sequence[str]) -> None:
    """Warn about out-of-domain sets and metrics that cannot be evaluated."""
    from densecal.metrics import OOD_METRICS

    severities = [one.condition.level for one in sets if not one.condition.out_of_domain]
    if len(severities) == len(sets):
        for metric in metrics:
            if metric in OOD_METRICS:
                warn_user(f"--metric {metric} is not evaluated: it needs out-of-domain data (--ood).")
    elif 0 not in severities:
        needs = "a set of severity 0 (--data) to compare with"
        warn_user(f"The out-of-domain sets are not evaluated: that needs {needs}.")


def _check_validation(validation: Outputs, name: str, sets: list[LoadedSet]) -> None:
    """Raise if the validation set of that name has other classes than the test sets, or is one of them."""
    n_classes = sets[0].condition.outputs.n_classes
    if validation.n_classes != n_classes:
        raise ValueError(
            f"{name} has {validation.n_classes} classes, but {sets[0].path} has {n_classes}: they come from "
            "different classifiers."
        )
    for one in sets:
        tested = {f"--val {name}": validation, f"the test set {one.path}": one.condition.outputs}
        check_different(tested, "Calibrators are evaluated on other data than they were fitted on.")


def _check_sets(sets: list[LoadedSet], calibrators: list[Calibrator]) -> None:
    """Raise with the name of the file if a calibrator cannot be applied to a set; check each shape of outputs once."""
    checked = set()
    for one in sets:
        outputs = one.condition.outputs[:SAMPLES_CHECKED]
        shape = (outputs.n_classes, *((layer, array.shape[1]) for layer, array in outputs.features.items()))
        if shape not in checked:
            checked.add(shape)
            with name_file_in_errors(one.path):
                for calibrator in calibrators:
                    calibrator.predict_proba(outputs)


def _fit_without_dac(fitted: dict[str, Calibrator], validation: Outputs, path: str) -> dict[str, Calibrator]:
    """Fit each method without its DAC stage, so that the evaluation shows the effect of DAC."""
    from densecal.calibrators import UNCALIBRATED
    from densecal.calibrators.registry import base_method, make_calibrator

    found: dict[str, Calibrator] = {}
    for calibrator in fitted.values():
        base = base_method(calibrator.method_name)
        # DAC with the same temperature for all samples is temperature scaling.
        base = "ts" if base == UNCALIBRATED else base
        if calibrator.density_stage is not None and base not in fitted:
            with name_file_in_errors(path):
                found[base] = make_calibrator(base).fit(validation)
    return found
