"""``densecal evaluate`` and ``densecal report``: evaluate calibrators on test sets, as tables or as an HTML report."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from densecal.cli.screen import (
    FILES,
    Json,
    collect_warnings,
    metrics_table,
    open_console,
    print_json,
    print_out_of_domain_table,
    print_warnings,
    printable,
    sets_table,
    severity_table,
    table_as_json,
)

if TYPE_CHECKING:
    from densecal.calibrators.base import Calibrator
    from densecal.evaluation import Condition, EvaluationTable
    from densecal.evaluation.test_sets import LoadedSet
    from densecal.outputs import Outputs

SAMPLES_CHECKED = 16
"""Number of samples used to check that test sets are compatible with the calibrators."""

Calibrators = Annotated[
    list[str], typer.Argument(help="Calibrators written by `densecal fit`, as PATH or NAME=PATH.", show_default=False)
]
Data = Annotated[
    list[str],
    typer.Option(
        help=f"Labelled test sets, as PATH or NAME=PATH, repeatable: {FILES}. A folder of such files is one set per "
        "file. The severity of the shift is read from the metadata of the file or from its name: fog-severity-3, fog-3 "
        "(a known corruption), or a series such as test-1, test-3."
    ),
]
OutOfDomain = Annotated[
    list[str] | None, typer.Option("--ood", help="Test sets whose samples belong to none of the classes, repeatable.")
]
Validation = Annotated[
    Path | None,
    typer.Option(
        "--val",
        help="The labelled validation set of the fit, in the same formats. For comparison, each method is also fitted "
        "on it without DAC (DAC alone becomes temperature scaling).",
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


@dataclass(frozen=True)
class _Inputs:
    """The inputs of both commands."""

    calibrators: dict[str, Calibrator]
    conditions: list[Condition]
    sets: list[LoadedSet]
    validation: Outputs | None
    warnings: list[str]

    def evaluate(self, *, oracle: bool, n_resamples: int | None, metrics: list[str] | None = None) -> EvaluationTable:
        """Evaluate the calibrators on the conditions; None selects the library's default."""
        from densecal.evaluation import evaluate_conditions
        from densecal.report.verdict import NEEDED_METRICS

        messages = self._warn_out_of_domain(metrics or [])
        print_warnings(messages)
        self.warnings.extend(messages)
        options: dict[str, Any] = {"oracle": oracle}
        if n_resamples is not None:
            options["n_resamples"] = n_resamples
        if metrics:
            options["metrics"] = list(dict.fromkeys((*NEEDED_METRICS, *metrics)))
        return evaluate_conditions(self.calibrators, self.conditions, **options)

    def _warn_out_of_domain(self, metrics: list[str]) -> list[str]:
        """Say what of out-of-domain detection cannot be evaluated."""
        from densecal.metrics import OOD_METRICS

        severities = [one.severity for one in self.conditions if not one.out_of_domain]
        if len(severities) < len(self.conditions):
            needs = "a set of severity 0 (--data) to compare with"
            return [] if 0 in severities else [f"The out-of-domain sets are not evaluated: that needs {needs}."]
        unused = [metric for metric in metrics if metric in OOD_METRICS]
        return [f"--metric {metric} is not evaluated: it needs out-of-domain data (--ood)." for metric in unused]

    def as_json(self, table: EvaluationTable) -> dict[str, Any]:
        """Return the evaluation, the test sets and the warnings as plain data."""
        sets = [
            {
                "name": one.condition.name,
                "path": one.path,
                "severity": one.condition.severity,
                "severity_from": one.severity_from,
                "out_of_domain": one.condition.out_of_domain,
                "samples": len(one.condition.outputs),
            }
            for one in self.sets
        ]
        return {**table_as_json(table), "sets": sets, "warnings": self.warnings}


def evaluate(
    calibrators: Calibrators,
    data: Data,
    ood: OutOfDomain = None,
    val: Validation = None,
    ignore_names: IgnoreNames = False,
    oracle: Oracle = False,
    metric: Annotated[list[str] | None, typer.Option(help="A metric to show, repeatable.")] = None,
    resamples: Resamples = None,
    as_json: Json = False,
) -> None:
    """Compare calibrated with uncalibrated confidences on test sets, with bootstrap intervals."""
    from densecal.evaluation.test_sets import severity_line
    from densecal.report.verdict import judge

    inputs = _read_inputs(calibrators, data, ood, val, severity_from_names=not ignore_names)
    table = inputs.evaluate(oracle=oracle, n_resamples=resamples, metrics=metric)
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


def report(
    calibrators: Calibrators,
    data: Data,
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML page to write.")] = Path("report.html"),
    ood: OutOfDomain = None,
    val: Validation = None,
    ignore_names: IgnoreNames = False,
    oracle: Oracle = False,
    title: Annotated[str, typer.Option(help="The heading of the page.")] = "Can these confidences be trusted?",
    resamples: Resamples = None,
    as_json: Json = False,
) -> None:
    """Write a self-contained HTML report on how well confidences are calibrated."""
    from densecal.evaluation.test_sets import severity_line
    from densecal.io.files import check_not_a_folder
    from densecal.report import judge, write_report

    check_not_a_folder(output)
    inputs = _read_inputs(calibrators, data, ood, val, severity_from_names=not ignore_names)
    table = inputs.evaluate(oracle=oracle, n_resamples=resamples)
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


def _read_inputs(
    calibrators: list[str], data: list[str], ood: list[str] | None, val: Path | None, *, severity_from_names: bool
) -> _Inputs:
    """Read calibrators and test sets, and fit the methods without DAC on the validation set."""
    from densecal.evaluation.test_sets import check_unique, read_sets
    from densecal.outputs import read_labelled

    fitted, messages = _read_calibrators(calibrators)
    with collect_warnings() as new_messages:
        sets = read_sets(data, severity_from_names=severity_from_names)
        if ood:
            sets += read_sets(ood, out_of_domain=True)
            check_unique(sets)
        _check_sets(sets, list(fitted.values()))
        conditions = [one.condition for one in sets]
        validation = None
        if val is not None:
            validation = read_labelled(val, "the methods without DAC are fitted on it.")
            if validation.n_classes != conditions[0].outputs.n_classes:
                raise ValueError(
                    f"{val} has {validation.n_classes} classes, but {sets[0].path} has "
                    f"{conditions[0].outputs.n_classes}: they come from different classifiers."
                )
            fitted = {**_fit_without_dac(fitted, validation, val), **fitted}
    return _Inputs(fitted, conditions, sets, validation, messages + new_messages)


def _check_sets(sets: list[LoadedSet], calibrators: list[Calibrator]) -> None:
    """Raise with the name of the file if a calibrator cannot be applied to a set; check each shape of outputs once."""
    from densecal.outputs import name_file_in_errors

    checked = set()
    for one in sets:
        outputs = one.condition.outputs
        shape = (outputs.n_classes, *((layer, array.shape[1]) for layer, array in outputs.features.items()))
        if shape not in checked:
            checked.add(shape)
            with name_file_in_errors(one.path):
                for calibrator in calibrators:
                    calibrator.predict_proba(outputs[:SAMPLES_CHECKED])


def _read_calibrators(sources: list[str]) -> tuple[dict[str, Calibrator], list[str]]:
    """Return the calibrators by name, and the warnings of their fits."""
    from densecal.calibrators.registry import from_artefact
    from densecal.io import artefacts

    fitted: dict[str, Calibrator] = {}
    messages: list[str] = []
    for source in sources:
        name, _, after = source.partition("=")
        path = Path(after) if after and not Path(source).exists() else Path(source)
        artefact = artefacts.read(path)
        calibrator = from_artefact(path, artefact)
        if path != Path(after):
            name = calibrator.method_name if calibrator.method_name not in fitted else path.stem
        if name in fitted:
            raise ValueError(f"Two calibrators have the name {name!r}. Name them: first=PATH second=PATH.")
        fitted[name] = calibrator
        messages += artefact.metadata.get("warnings", [])
    return fitted, messages


def _fit_without_dac(fitted: dict[str, Calibrator], validation: Outputs, path: Path) -> dict[str, Calibrator]:
    """Fit each method without its DAC stage, so that the evaluation shows the effect of DAC."""
    from densecal.calibrators.names import UNCALIBRATED, base_method
    from densecal.calibrators.registry import make_calibrator
    from densecal.outputs import name_file_in_errors

    found: dict[str, Calibrator] = {}
    for calibrator in fitted.values():
        base = base_method(calibrator.method_name)
        # DAC with the same temperature for all samples is temperature scaling.
        base = "ts" if base == UNCALIBRATED else base
        if calibrator.density_stage is not None and base not in fitted:
            with name_file_in_errors(path):
                found[base] = make_calibrator(base).fit(validation.logits, validation.labels)
    return found
