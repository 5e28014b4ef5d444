"""What the report says about the data and the calibrators."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from densecal.calibrators.base import Calibrator
from densecal.calibrators.dac.guard import describe_cost
from densecal.calibrators.names import method_label
from densecal.calibrators.spline import SplineCalibration
from densecal.outputs import Outputs
from densecal.report.words import counted, percent

if TYPE_CHECKING:
    from densecal.evaluation import EvaluationTable

PER_SET = ("condition", "severity", "role", "split")
NOT_SHOWN = (
    "n_classes",
    "is_identity",
    "converged",
    "n_iterations",
    "weights",
    "plain_temperature",
    "uncalibrated_loss",
    "excess_spread",
)


def data_metadata(table: EvaluationTable, validation: Outputs | None, more: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return names and values that hold for all the data."""
    first = table.conditions[0].outputs
    samples = sum(len(condition.outputs) for condition in table.conditions)
    found = {
        "Classes": str(first.n_classes),
        "Test samples": f"{samples:,} in {counted(len(table.conditions), 'set')}",
    }
    if validation is not None:
        found["Validation samples"] = f"{len(validation):,}"
    for condition in table.out_of_domain:
        found[f"Out of domain: {condition.name}"] = counted(len(condition.outputs), "sample")
    shared = {key: value for key, value in first.metadata.items() if key not in PER_SET}
    found |= {key.replace("_", " ").capitalize(): value for key, value in shared.items()}
    return [*(found | dict(more)).items()]


def calibrator_metadata(calibrators: Mapping[str, Calibrator]) -> list[dict[str, Any]]:
    """Return what each calibrator is, what it learned and where it was published."""
    return [
        {
            "label": method_label(name),
            "full_name": calibrator.full_name,
            "accuracy_preserving": calibrator.accuracy_preserving,
            "learned": learned_numbers(calibrator),
            "bank": _bank_text(calibrator),
            "citations": list(dict.fromkeys(str(stage.citation) for stage in calibrator.stages)),
        }
        for name, calibrator in calibrators.items()
    ]


def own_confidence(calibrators: Mapping[str, Calibrator]) -> list[str]:
    """Return the labels of the methods whose confidence is not the largest of their probabilities."""
    return [method_label(name) for name, one in calibrators.items() if isinstance(one.stages[-1], SplineCalibration)]


def learned_numbers(calibrator: Calibrator) -> list[tuple[str, str]]:
    """Return the names and values of the learned numbers that are few enough to read."""
    return [
        (name.strip("_").replace("_", " "), text)
        for stage in calibrator.state().stages
        for name, value in stage.learned.items()
        if name.strip("_") not in NOT_SHOWN and (text := _show(value))
    ]


def _show(value: object) -> str:
    if isinstance(value, (int, float, np.number)) and not isinstance(value, bool):
        return f"{float(value):.3g}"
    if isinstance(value, dict) and "nll_error" in value:
        return f"{describe_cost(value)} against temperature scaling"
    if isinstance(value, dict):
        return ", ".join(f"{name} {percent(share)}" for name, share in value.items())
    if isinstance(value, np.ndarray) and value.ndim == 1 and 0 < value.size <= 8:
        return ", ".join(f"{number:.3g}" for number in value.tolist())
    return ""


def _bank_text(calibrator: Calibrator) -> str:
    bank = calibrator.density_stage.bank if calibrator.density_stage is not None else None
    if bank is None:
        return ""
    layers = ", ".join(f"{layer} ({width})" for layer, width in bank.widths.items())
    return f"{counted(len(bank), 'training sample')}, k = {bank.k}; layers {layers}"
