"""Text of the report and the commands: formatted numbers, names, metadata and cautions."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping

from densecal.calibrators import DAC_NAME
from densecal.calibrators.base import Calibrator
from densecal.calibrators.registry import (
    METHODS,
    base_method,
    clean_fitted,
    is_shift_fitted,
    method_label,
    parse_method,
)
from densecal.calibrators.solvers.temperature_fit import LOG_TEMPERATURE_BOUND, SMALLEST_BIAS
from densecal.calibrators.validation_warnings import validation_cautions
from densecal.display import counted, points
from densecal.evaluation import EvaluationTable
from densecal.evaluation.conditions import chance_cautions
from densecal.metrics import Interval
from densecal.outputs import Outputs

INTERVALS_EXPLAINED = (
    "The ECE of a finite sample is biased upwards. The interval corrects for the bias, so it can lie mostly below the "
    "value."
)
"""Note shown with the intervals."""
PER_SET = ("condition", "severity", "role", "split")
FEW_TEST_SAMPLES = 500
ROUNDING = 1e-6
"""Relative difference up to which a fitted value counts as at its bound."""


def with_interval(found: Interval) -> str:
    """Format an estimate and, if available, its interval in percentage points."""
    ends = "" if math.isnan(found.low) else f" ({points(found.low)} to {points(found.high)})"
    return points(found.estimate) + ends


def level_name(table: EvaluationTable, level: int | str) -> str:
    """Return the name of a severity or natural shift. Severity 0 with several sets may not be clean data."""
    if isinstance(level, str):
        return f"{level} (natural shift)"
    if level:
        return f"severity {level}"
    return "clean data" if len(clean_sets(table)) < 2 else "the sets without a severity"


def level_place(table: EvaluationTable, level: int | str) -> str:
    """Return the name of a severity or natural shift with its preposition, such as ``at severity 3``."""
    return f"{'at' if isinstance(level, int) and level else 'on'} {level_name(table, level)}"


def clean_sets(table: EvaluationTable) -> list[str]:
    """Return the names of the sets that count as clean data: those of severity 0."""
    return [condition.name for condition in table.conditions if condition.level == 0]


def css_name(method: str) -> str:
    """Return the CSS custom property that holds the colour of a method."""
    name = re.sub(r"[^a-z0-9]+", "-", base_method(method).lower()).strip("-") or "other"
    return f"--m-{name}-shift" if is_shift_fitted(method) else f"--m-{name}"


def css_colour(method: str) -> str:
    """Return the CSS value of the colour of a method."""
    return f"var({css_name(method)})"


def listed(parts: list[str], most: int = 8) -> str:
    """Join parts as in a sentence: ``a, b and c``, and only the number of those beyond ``most``."""
    parts = parts if len(parts) <= most else [*parts[:most], f"{len(parts) - most} more"]
    return " and ".join(filter(None, (", ".join(parts[:-1]), *parts[-1:])))


def explain_names(method: str, reference: str) -> str:
    """Return one sentence that explains the names of two methods."""
    parts = dict.fromkeys(part for name in (reference, method) for part in parse_method(clean_fitted(name)))
    names = {part: METHODS[part].full_name for part in parts if part in METHODS}
    texts = {part: f"{method_label(part)} is {name[0].lower()}{name[1:]}" for part, name in names.items()}
    if DAC_NAME in texts:
        texts[DAC_NAME] += ", which lowers the confidence of inputs far from the training data"
        if is_shift_fitted(method):
            texts[DAC_NAME] += " (shift fit: fitted on perturbed validation data as well)"
    return "; ".join(texts.values()) + "." if texts else ""


def data_metadata(table: EvaluationTable, validation: Outputs | None, more: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the names and values of the metadata that all data sets share."""
    first = table.conditions[0].outputs
    samples = sum(condition.n_samples for condition in table.conditions)
    found = {
        "Classes": str(first.n_classes),
        "Test samples": f"{samples:,} in {counted(len(table.conditions), 'set')}",
    }
    if clean := clean_sets(table):
        found["Clean data" if len(clean) == 1 else "Without a severity"] = listed(clean)
    drawn = max((len(one.outputs) for one in table.conditions if one.n_samples > len(one.outputs)), default=0)
    if drawn:
        found["Intervals and distributions"] = f"of larger sets, from {drawn:,} random samples"
    if validation is not None:
        found["Validation samples"] = f"{len(validation):,}"
    for condition in table.out_of_domain:
        found[f"Out of domain: {condition.name}"] = counted(condition.n_samples, "sample")
    shared = {key: value for key, value in first.metadata.items() if key not in PER_SET}
    found |= {key.replace("_", " ").capitalize(): value for key, value in shared.items()}
    return [*(found | dict(more)).items()]


def bank_text(calibrator: Calibrator) -> str:
    """Return the size and the layers of the bank of a calibrator, or an empty text."""
    stage = calibrator.density_stage
    if stage is None or stage.bank is None:
        return ""
    layers = ", ".join(f"{layer} ({width})" for layer, width in stage.bank.widths.items())
    rows = f"{counted(len(stage.bank), 'training sample')}, k = {stage.k}"
    return f"{stage.bank.describe() if stage.k is None else rows}; layers {layers}"


def cautions(
    table: EvaluationTable,
    calibrators: Mapping[str, Calibrator],
    *,
    validation: Outputs | None = None,
    given: Iterable[str] = (),
) -> list[str]:
    """Return the given and the found cautions, without duplicates."""
    found = [*given]
    if validation is not None:
        found += validation_cautions(validation)
    for name, calibrator in calibrators.items():
        found += _about_fit(method_label(name), calibrator)
    found += [*_about_density(calibrators), *chance_cautions(table.conditions), *_about_tests(table)]
    return list(dict.fromkeys(found))


def _about_fit(label: str, calibrator: Calibrator) -> Iterator[str]:
    for stage in calibrator.stages:
        if stage.is_identity_:
            yield f"{label} did not improve the validation loss, so it returns the softmax unchanged."
        if not getattr(stage, "converged_", True):
            yield f"{label}: the optimiser did not converge."
        temperature = getattr(stage, "temperature_", 1.0)
        if math.isclose(abs(math.log(temperature)), LOG_TEMPERATURE_BOUND, rel_tol=ROUNDING):
            yield f"{label}: the temperature reached its bound, {temperature:g}."
    if not calibrator.accuracy_preserving:
        yield f"{label} can change the predicted class."


def _about_density(calibrators: Mapping[str, Calibrator]) -> list[str]:
    """Return cautions about the fitted DACs, each once, preceded by the names of the methods."""
    labels: dict[str, list[str]] = {}
    for name, calibrator in calibrators.items():
        if caution := _about_weights(calibrator):
            labels.setdefault(caution, []).append(method_label(name))
    return [f"{', '.join(names)}: {caution}" for caution, names in labels.items()]


def _about_weights(calibrator: Calibrator) -> str:
    stage = calibrator.density_stage
    if stage is None or not len(stage.weights_):
        return ""
    if not stage.weights_.any():
        return (
            "DAC gave every layer zero weight, so it is equivalent to temperature scaling. Fit it with shifted "
            "validation data (densecal fit --shifted) to improve its calibration under shift."
        )
    # In a shift fit w_0 is a factor and has no such bound.
    if stage.bias_ <= SMALLEST_BIAS * stage.plain_temperature_ * (1 + ROUNDING) and not stage.shift_fitted:
        return (
            "the constant part w₀ of DAC's temperature reached its lower bound. An input at a distance near zero from "
            "the training data, such as a duplicate, gets a confidence close to 100 %, whether right or wrong."
        )
    return ""


def _about_tests(table: EvaluationTable) -> Iterator[str]:
    sizes = [condition.n_samples for condition in table.conditions]
    small = [size for size in sizes if size < FEW_TEST_SAMPLES]
    which, smallest = "One test set has", ""
    if len(small) > 1:
        which, smallest = f"{len(small)} of the {len(sizes)} test sets have", "the smallest "
    intervals = " See the intervals." if table.has_intervals else ""
    if small:
        yield (
            f"{which} fewer than {FEW_TEST_SAMPLES} samples ({smallest}{min(small)}). The ECE of small sets is biased "
            f"upwards.{intervals}"
        )
