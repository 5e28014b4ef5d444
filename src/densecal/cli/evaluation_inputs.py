"""The inputs of ``densecal evaluate`` and ``densecal report``: calibrators, test sets and the methods without DAC."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from densecal.cli.command import UsageError, usage_errors
from densecal.cli.file_options import MAX_FIT_SAMPLES
from densecal.cli.screen import collect_warnings, print_warnings, table_as_json
from densecal.errors import listed
from densecal.io.file_layout import FileLayout

if TYPE_CHECKING:
    from densecal.calibrators.base import Calibrator
    from densecal.evaluation import Condition, EvaluationTable
    from densecal.evaluation.stream import Mapper
    from densecal.evaluation.test_sets import LoadedSet
    from densecal.outputs import Outputs

SAMPLES_CHECKED = 16
"""Number of samples used to check that test sets are compatible with the calibrators."""


def check_options(metrics: list[str] | None, n_resamples: int | None) -> None:
    """Raise for a metric that does not exist or too few resamples, before any file is read."""
    from densecal.evaluation.grid import check_resamples, find_metrics

    with usage_errors():
        find_metrics(metrics or [])
        check_resamples(n_resamples or 0, ["ece"])


@dataclass(frozen=True)
class Inputs:
    """The inputs of both commands."""

    calibrators: dict[str, Calibrator]
    conditions: list[Condition]
    sets: list[LoadedSet]
    validation: Outputs | None
    warnings: list[str]

    def evaluate(
        self, metrics: list[str] | None = None, *, mapper: Mapper | None = None, **given: int | None
    ) -> EvaluationTable:
        """Evaluate the calibrators on the conditions; None selects the library's default."""
        from densecal.evaluation import evaluate_conditions
        from densecal.report.verdict import NEEDED_METRICS

        messages = self._warn_out_of_domain(metrics or [])
        print_warnings(messages)
        self.warnings.extend(messages)
        options: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
        options["mapper"] = mapper
        if metrics:
            options["metrics"] = list(dict.fromkeys((*NEEDED_METRICS, *metrics)))
        return evaluate_conditions(self.calibrators, self.conditions, **options)

    def _warn_out_of_domain(self, metrics: list[str]) -> list[str]:
        """Say what of out-of-domain detection cannot be evaluated."""
        from densecal.metrics import OOD_METRICS

        severities = [one.level for one in self.conditions if not one.out_of_domain]
        if len(severities) < len(self.conditions):
            needs = "a set of severity 0 (--data) to compare with"
            return [] if 0 in severities else [f"The out-of-domain sets are not evaluated: that needs {needs}."]
        unused = [metric for metric in metrics if metric in OOD_METRICS]
        return [f"--metric {metric} is not evaluated: it needs out-of-domain data (--ood)." for metric in unused]

    def as_json(self, table: EvaluationTable) -> dict[str, Any]:
        """Return the evaluation, the estimated accuracies, the test sets and the warnings as plain data."""
        from densecal.report.estimates import estimate_sets
        from densecal.report.verdict import judge

        sets = [
            {
                "name": one.condition.name,
                "path": one.path,
                "severity": None if one.condition.natural else one.condition.severity,
                "natural": one.condition.natural,
                "severity_from": one.severity_from,
                "out_of_domain": one.condition.out_of_domain,
                "n_samples": one.condition.n_samples,
            }
            for one in self.sets
        ]
        estimates = [one.to_dict() for one in estimate_sets(table, self.calibrators, judge(table).method)]
        return {**table_as_json(table), "estimates": estimates, "sets": sets, "warnings": self.warnings}


def read_inputs(
    calibrators: list[str],
    data: dict[str, list[str] | None],
    val: list[Path] | None,
    *,
    severity_from_names: bool,
    layout: FileLayout,
) -> Inputs:
    """Read calibrators and test sets, and fit the methods without DAC on the validation set."""
    from densecal.evaluation.test_sets import check_unique, read_sets
    from densecal.reading import check_different, expand, read_shards, require_labels

    fitted, messages, layout = _read_calibrators(calibrators, layout)
    with collect_warnings() as new_messages:
        sets: list[LoadedSet] = []
        for option, sources in data.items():
            if sources:
                sets += read_sets(
                    sources,
                    out_of_domain=option == "ood",
                    natural=option == "natural",
                    severity_from_names=severity_from_names,
                    layout=layout,
                )
        check_unique(sets)
        _check_sets(sets, list(fitted.values()))
        conditions = [one.condition for one in sets]
        validation = None
        if val:
            files = expand(val)
            name, why = listed([str(path) for path in files]), "the methods without DAC are fitted on it."
            validation = require_labels(read_shards(files, layout, max_samples=MAX_FIT_SAMPLES).outputs, name, why)
            if validation.n_classes != conditions[0].outputs.n_classes:
                raise ValueError(
                    f"{name} has {validation.n_classes} classes, but {sets[0].path} has "
                    f"{conditions[0].outputs.n_classes}: they come from different classifiers."
                )
            for one in sets:
                tested = {f"--val {name}": validation, f"the test set {one.path}": one.condition.outputs}
                check_different(tested, "Calibrators are evaluated on other data than they were fitted on.")
            fitted = {**_fit_without_dac(fitted, validation, name), **fitted}
    return Inputs(fitted, conditions, sets, validation, messages + new_messages)


def _check_sets(sets: list[LoadedSet], calibrators: list[Calibrator]) -> None:
    """Raise with the name of the file if a calibrator cannot be applied to a set; check each shape of outputs once."""
    from densecal.outputs import name_file_in_errors

    checked = set()
    for one in sets:
        outputs = one.condition.outputs[:SAMPLES_CHECKED]
        shape = (outputs.n_classes, *((layer, array.shape[1]) for layer, array in outputs.features.items()))
        if shape not in checked:
            checked.add(shape)
            with name_file_in_errors(one.path):
                for calibrator in calibrators:
                    calibrator.predict_proba(outputs)


def _read_calibrators(sources: list[str], layout: FileLayout) -> tuple[dict[str, Calibrator], list[str], FileLayout]:
    """Return the calibrators by name, the warnings of their fits, and the layout with the classes of the first."""
    from densecal.calibrators.restore import from_artefact
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
            raise UsageError(f"Two calibrators have the name {name!r}. Name them: first=PATH second=PATH.")
        fitted[name] = calibrator
        messages += artefact.metadata.get("warnings", [])
        layout = layout if len(fitted) > 1 else layout.for_calibrator(artefact.metadata)
    return fitted, messages, layout


def _fit_without_dac(fitted: dict[str, Calibrator], validation: Outputs, path: str) -> dict[str, Calibrator]:
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
