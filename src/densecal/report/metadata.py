"""What the report says about the data and the artefacts it judged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from densecal.calibrators.base import Calibrator
from densecal.calibrators.names import method_label
from densecal.evaluation.conditions import bank_of
from densecal.outputs import Outputs
from densecal.report.words import counted, percent

if TYPE_CHECKING:
    from densecal.evaluation import EvaluationTable

OWN_FACTS = ("condition", "severity", "role", "split")
UNTOLD = ("n_classes_", "is_identity_", "converged_", "n_iterations_", "weights_")


def data_facts(table: EvaluationTable, validation: Outputs | None, more: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the metadata that hold for all the data."""
    first = table.conditions[0].outputs
    samples = sum(len(condition.outputs) for condition in table.conditions)
    metadata = {
        "Classes": str(first.n_classes),
        "Test samples": f"{samples:,} in {counted(len(table.conditions), 'set')}",
    }
    if validation is not None:
        metadata["Validation samples"] = f"{len(validation):,}"
    for condition in table.out_of_domain:
        metadata[f"Out of domain: {condition.name}"] = counted(len(condition.outputs), "sample")
    shared = {key: value for key, value in first.metadata.items() if key not in OWN_FACTS}
    metadata |= {key.replace("_", " ").capitalize(): value for key, value in shared.items()}
    metadata |= dict(more)
    return list(metadata.items())


def condition_facts(table: EvaluationTable) -> list[dict[str, Any]]:
    """Return one row a test set."""
    method = table.methods[0]
    rows = []
    for condition in table.conditions:
        judged = table.judged[method, str(condition)]
        rows.append(
            {
                "name": condition.name,
                "severity": condition.severity,
                "samples": f"{len(condition.outputs):,}",
                "accuracy": percent(float(judged.correct.mean()), 1),
            }
        )
    return rows


def calibrator_facts(calibrators: Mapping[str, Calibrator]) -> list[dict[str, Any]]:
    """Return what each calibrator is, what it learned and where it was published."""
    return [
        {
            "label": method_label(name),
            "full_name": calibrator.full_name,
            "keeps_answers": calibrator.accuracy_preserving,
            "learned": learned_numbers(calibrator),
            "bank": _bank_fact(calibrator),
            "papers": _papers(calibrator),
        }
        for name, calibrator in calibrators.items()
    ]


def own_confidence(calibrators: Mapping[str, Calibrator]) -> list[str]:
    """Return the labels of the methods whose confidence is not the largest of their probabilities: spline calibration.

    Examples
    --------
    >>> from densecal import DAC, Chain, SplineCalibration, TemperatureScaling
    >>> own_confidence({"ts": TemperatureScaling(), "dac+spl": Chain(DAC(), SplineCalibration())})
    ['DAC + SPL']
    """
    return [method_label(name) for name, one in calibrators.items() if one.short_name.split("+")[-1] == "spl"]


def learned_numbers(calibrator: Calibrator) -> list[tuple[str, str]]:
    """Return the few learned numbers that a person can read, by name.

    Examples
    --------
    >>> from densecal import TemperatureScaling
    >>> learned_numbers(TemperatureScaling().fit([[4.0, 0.0]] * 4, [0, 0, 0, 1]))
    [('temperature', '3.64')]
    """
    found = []
    for stage in getattr(calibrator, "stages", (calibrator,)):
        for name, value in vars(stage).items():
            if not name.endswith("_") or name.startswith("_") or name in UNTOLD:
                continue
            shown = _show(value)
            if shown:
                found.append((name.strip("_").replace("_", " "), shown))
    return found


def _show(value: Any) -> str:
    if isinstance(value, (bool, str)):
        return ""
    if isinstance(value, (int, float, np.number)):
        return f"{float(value):.3g}"
    if isinstance(value, dict):
        return ", ".join(f"{name} {percent(share)}" for name, share in value.items())
    if isinstance(value, np.ndarray) and value.ndim == 1 and 0 < value.size <= 8:
        return ", ".join(f"{number:.3g}" for number in value.tolist())
    return ""


def _bank_fact(calibrator: Calibrator) -> str:
    bank = bank_of(calibrator)
    if bank is None:
        return ""
    layers = ", ".join(f"{layer} ({width})" for layer, width in bank.widths.items())
    return f"{counted(len(bank), 'training sample')}, k = {bank.k}; layers {layers}"


def _papers(calibrator: Calibrator) -> list[str]:
    stages = getattr(calibrator, "stages", (calibrator,))
    return list(dict.fromkeys(str(stage.paper) for stage in stages))
