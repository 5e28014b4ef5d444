"""The report's tables as data: cells with a number to sort by and words to read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from densecal.calibrators.names import ORACLE, method_label
from densecal.metrics import METRICS
from densecal.report.words import points, severity_name

if TYPE_CHECKING:
    from densecal.evaluation import EvaluationTable
    from densecal.metrics import Interval

AS_POINTS = {"ece", "ece_mass", "ece_kde", "ks", "accuracy", "mean_confidence", "classwise_ece", "classwise_ece_sum"}


def measure_name(measure: str) -> str:
    """Return a measure's column head.

    Examples
    --------
    >>> measure_name("nll"), measure_name("mean_confidence")
    ('NLL', 'Confidence')
    """
    return "Confidence" if measure == "mean_confidence" else METRICS[measure].symbol


def severity_table(table: EvaluationTable) -> dict[str, Any]:
    """Return the error of every method at every severity and overall, with intervals and the best in bold."""
    columns: list[tuple[str, int | None]] = [
        (severity_name(severity).capitalize(), severity) for severity in table.severities
    ]
    if len(columns) > 1:
        columns.append(("All", None))
    found = {m: [table.estimate(m, severity=severity) for _, severity in columns] for m in table.methods}
    real = [m for m in table.methods if m != ORACLE]
    best = [min(found[m][place].estimate for m in real) for place in range(len(columns))]
    worst = max(one.estimate for m in real for one in found[m]) or 1.0
    rows = []
    for method, estimates in found.items():
        cells = [
            {**_cell(one), "best": method in real and one.estimate <= best[place] + 1e-12, "heat": one.estimate / worst}
            for place, one in enumerate(estimates)
        ]
        rows.append({"label": method_label(method), "method": method, "cells": cells, "bound": method == ORACLE})
    return {"columns": [name for name, _ in columns], "rows": rows}


def _cell(found: Interval) -> dict[str, Any]:
    return {
        "value": 100 * found.estimate,
        "text": points(found.estimate),
        "low": None if np.isnan(found.low) else 100 * found.low,
        "high": None if np.isnan(found.high) else 100 * found.high,
    }


def full_table(table: EvaluationTable) -> dict[str, Any]:
    """Return every measure of every method on every condition."""
    measures = table.measures
    rows = []
    for method in table.methods:
        for place, condition in enumerate(table.conditions):
            cells = []
            for measure in measures:
                value = float(table.values[method, measure][place])
                shown = points(value) if measure in AS_POINTS else "–" if np.isnan(value) else f"{value:.3f}"
                cells.append({"value": 100 * value if measure in AS_POINTS else value, "text": shown})
            rows.append(
                {
                    "label": method_label(method),
                    "method": method,
                    "condition": condition.name,
                    "severity": condition.severity,
                    "samples": len(condition.outputs),
                    "cells": cells,
                }
            )
    heads = [f"{measure_name(m)} (%)" if m in AS_POINTS else measure_name(m) for m in measures]
    return {"columns": heads, "rows": rows}
