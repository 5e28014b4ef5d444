"""The report's tables as data: cells with a number to sort by and a text to show."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from densecal.calibrators.names import ORACLE, method_label
from densecal.metrics import METRICS, ood_scores
from densecal.report.words import points, severity_name

if TYPE_CHECKING:
    from densecal.evaluation import EvaluationTable
    from densecal.metrics import Interval

AS_POINTS = {"ece", "ece_mass", "ece_kde", "ks", "accuracy", "mean_confidence", "classwise_ece", "classwise_ece_sum"}


def metric_name(metric: str) -> str:
    """Return the column head of a metric."""
    return "Confidence" if metric == "mean_confidence" else METRICS[metric].symbol


def severity_table(table: EvaluationTable) -> dict[str, Any]:
    """Return the error of every method at every severity and overall, with intervals and the best in bold."""
    columns: dict[str, int | None] = {severity_name(severity).capitalize(): severity for severity in table.severities}
    if len(columns) > 1:
        columns["All"] = None
    found = {m: [table.estimate(m, severity=severity) for severity in columns.values()] for m in table.methods}
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
    return {"columns": list(columns), "rows": rows}


def _cell(found: Interval) -> dict[str, Any]:
    return {
        "value": 100 * found.estimate,
        "text": points(found.estimate),
        "low": None if np.isnan(found.low) else 100 * found.low,
        "high": None if np.isnan(found.high) else 100 * found.high,
    }


def full_table(table: EvaluationTable) -> dict[str, Any]:
    """Return every metric of every method on every test set."""
    rows = [
        {
            "label": method_label(method),
            "method": method,
            "condition": condition.name,
            "severity": condition.severity,
            "samples": len(condition.outputs),
            "cells": [_metric_cell(metric, float(table.values[method, metric][place])) for metric in table.measures],
        }
        for method in table.methods
        for place, condition in enumerate(table.conditions)
    ]
    heads = [f"{metric_name(metric)} (%)" if metric in AS_POINTS else metric_name(metric) for metric in table.measures]
    return {"columns": heads, "rows": rows}


def _metric_cell(metric: str, value: float) -> dict[str, Any]:
    if metric in AS_POINTS:
        return {"value": 100 * value, "text": points(value)}
    return {"value": value, "text": "–" if np.isnan(value) else f"{value:.3f}"}


def out_of_domain_scores(table: EvaluationTable) -> list[dict[str, Any]]:
    """Return how well the confidence of each method separates in-domain from out-of-domain data, one row per pair."""
    if 0 not in table.severities:
        return []
    return [
        {
            "method": method,
            "data": condition.name,
            **ood_scores(table.pooled(method, 0).confidence, table.judged[method, str(condition)].confidence).as_dict(),
        }
        for condition in table.out_of_domain
        for method in table.methods
        if (method, str(condition)) in table.judged
    ]
