"""The report's tables as data: rows of estimates, and their formatting."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from densecal.calibrators import ORACLE
from densecal.display import points
from densecal.evaluation import Condition, EvaluationTable
from densecal.evaluation.table import KNOWN_METRICS
from densecal.metrics import Interval, ood_scores
from densecal.outputs import Outputs
from densecal.report.text import level_name

AS_POINTS = {"ece", "ece_mass", "ece_kde", "ks", "accuracy", "mean_confidence", "classwise_ece", "classwise_ece_sum"}


def metric_heading(metric: str) -> str:
    """Return the column heading of a metric, with its unit."""
    name = KNOWN_METRICS[metric].symbol if metric in KNOWN_METRICS else metric
    return f"{name} (%)" if metric in AS_POINTS else name


def lowest_shown(errors: Iterable[Interval]) -> str:
    """Return the lowest error as it is shown: every error that looks the same is bold."""
    return points(min(one.estimate for one in errors))


def severity_table(table: EvaluationTable) -> dict[str, Any]:
    """Return the error of every method at every severity, overall and on every natural shift, the lowest marked."""
    columns: dict[str, int | str | None] = {level_name(table, one).capitalize(): one for one in table.severities}
    if len(columns) > 1:
        columns["All"] = None
    columns |= {level_name(table, name): name for name in table.natural_shifts}
    found = {m: [table.estimate(m, severity=severity) for severity in columns.values()] for m in table.methods}
    real = [m for m in table.methods if m != ORACLE]
    best = [lowest_shown(found[m][place] for m in real) for place in range(len(columns))]
    worst = max(one.estimate for m in real for one in found[m]) or 1.0
    rows = []
    for method, estimates in found.items():
        cells = [
            {"found": one, "best": method in real and points(one.estimate) == lowest, "heat": one.estimate / worst}
            for one, lowest in zip(estimates, best, strict=True)
        ]
        rows.append({"method": method, "cells": cells, "bound": method == ORACLE})
    return {"columns": list(columns), "rows": rows}


def same_methods(table: EvaluationTable) -> list[list[str]]:
    """Return the groups of methods whose errors look the same on every test set."""
    groups: dict[tuple[str, ...], list[str]] = {}
    for method in table.methods:
        groups.setdefault(tuple(points(value) for value in table.values[method, "ece"]), []).append(method)
    return [names for names in groups.values() if len(names) > 1]


def metric_value(value: float, metric: str) -> float:
    """Return a metric in the unit of its column: percentage points, or unscaled."""
    return 100 * value if metric in AS_POINTS else value


def metric_text(value: float, metric: str) -> str:
    """Format a metric in the unit of its column."""
    return points(value) if metric in AS_POINTS else "–" if math.isnan(value) else f"{value:.3f}"


def out_of_domain_scores(table: EvaluationTable) -> list[dict[str, Any]]:
    """Return how well the confidence of each method separates in-domain from out-of-domain data, one row per pair."""
    rows = []
    for condition in table.out_of_domain if 0 in table.severities else ():
        for method in table.methods:
            if (method, str(condition)) in table.predictions:
                unknown = table.predictions[method, str(condition)].confidence
                scores = ood_scores(table.pooled(method, 0).confidence, unknown)
                rows.append({"method": method, "data": condition.name, **scores.as_dict()})
    return rows


def measured_outputs(table: EvaluationTable, method: str, condition: Condition) -> Outputs:
    """Return the outputs of a condition, with the distances that the evaluation measured for a method, if any."""
    known = table.distances.get((method, str(condition)))
    return condition.loaded if known is None else condition.loaded.with_distances(known)
