"""The report's sections as data for the template: their charts, legends and panels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from markupsafe import Markup

from densecal.arrays import Array, to_numpy
from densecal.calibrators import ORACLE, UNCALIBRATED
from densecal.calibrators.base import Calibrator
from densecal.calibrators.registry import base_method, has_dac, is_shift_fitted, method_label
from densecal.evaluation import EvaluationTable
from densecal.metrics import METRICS, OOD_METRICS, MetricState
from densecal.report.charts.confidence import box_chart, histogram_limits, reliability_chart, right_wrong_histogram
from densecal.report.charts.density import layer_chart, severity_colour, temperature_chart
from densecal.report.charts.severity import method_panel, overall_chart, severity_chart, shared_top
from densecal.report.comparison import better_than, clean_fit_of, find_method, judged_levels, method_of, style_of
from densecal.report.svg import NARROW
from densecal.report.tables import measured_outputs, out_of_domain_scores
from densecal.report.text import level_name
from densecal.report.verdict import Verdict


def compared_methods(table: EvaluationTable, verdict: Verdict) -> list[str]:
    """Return the methods of the main figures: uncalibrated, the reference, the clean fit, the method and the best."""
    wanted = dict.fromkeys((UNCALIBRATED, verdict.reference, clean_fit_of(table, verdict.method), verdict.method))
    shown = [name for name in wanted if name in table.methods]
    best = better_than(table, shown, *judged_levels(table))
    return shown if best is None else [*shown, best]


def curves_section(table: EvaluationTable, verdict: Verdict) -> dict[str, Any]:
    """Return charts of the error at each severity: the compared methods, and every pair without and with DAC."""
    main = compared_methods(table, verdict) + [ORACLE] * (ORACLE in table.methods)
    real = [method for method in table.methods if method != ORACLE]
    shifted = len(table.severities) > 1
    pairs: dict[str, list[str]] = {}
    for method in real:
        kind = method_of(table, method)
        if shifted and has_dac(kind) and (base := find_method(table, base_method(kind))):
            pairs.setdefault(base, []).append(method)
    top = shared_top(table, real)
    return {
        "wide": severity_chart(table, main, size=(980, 400), named=True),
        "narrow": severity_chart(table, main, size=(NARROW, 300), named=False),
        "legend": [{"method": name, "style": style_of(table, name)} for name in main],
        "panels": [
            {"method": base, "chart": method_panel(table, base, with_dac, top)} for base, with_dac in pairs.items()
        ],
        "overall_wide": overall_chart(table, real),
        "overall_narrow": overall_chart(table, real, width=NARROW),
        "shifted": shifted,
        "first": level_name(table, table.severities[0]),
        "shift_fitted": any(map(is_shift_fitted, real)),
    }


def reliability_section(table: EvaluationTable, verdict: Verdict) -> dict[str, Any]:
    """Return the panels of each severity: the compared methods, and the others in a collapsible section."""
    main = compared_methods(table, verdict)
    others = [name for name in table.methods if name not in main and name != ORACLE]
    levels = []
    for severity in table.levels:
        ylim = histogram_limits(table.pooled(method, severity) for method in main)
        levels.append(
            {
                "name": level_name(table, severity),
                "natural": severity in table.natural_shifts,
                "panels": [_reliability_panel(table, name, severity, ylim) for name in main],
                "others": [_reliability_panel(table, name, severity, None) for name in others],
                "conditions": [condition for condition in table.conditions if condition.level == severity],
            }
        )
    return {"levels": levels, "others": [method_label(name) for name in others]}


def _reliability_panel(
    table: EvaluationTable, method: str, severity: int | str, ylim: tuple[float, float] | None
) -> dict[str, Any]:
    confidence, correct = table.pooled(method, severity)
    state = _state(table, method, severity)
    found, label = state.compute(kde=False), method_label(method)
    return {
        "method": method,
        "found": found,
        "chart": reliability_chart(state.reliability_curve(), found, f"{label}, {level_name(table, severity)}"),
        "histogram": Markup() if ylim is None else right_wrong_histogram(confidence, correct, label, ylim=ylim),
    }


def _state(table: EvaluationTable, method: str, severity: int | str) -> MetricState:
    """Return the metric state of all samples of a severity, of which the table may have only a random part."""
    found = MetricState(classwise=False)
    for name in (str(condition) for condition in table.conditions if condition.level == severity):
        known = table.states.get((method, name))
        if known is None:
            found.update(*table.predictions[method, name])
        else:
            found.merge(known)
    return found


def density_section(
    table: EvaluationTable, calibrators: Mapping[str, Calibrator], verdict: Verdict
) -> dict[str, Any] | None:
    """Return layer importance and temperature against distance of the verdict's DAC, or else of the first DAC."""
    stages = {name: one.density_stage for name, one in calibrators.items()}
    name = next((name for name in (verdict.method, *stages) if stages.get(name) is not None), "")
    stage = stages.get(name)
    if stage is None or not stage.layer_importance_:
        return None
    importance = stage.layer_importance_
    leading = max(importance, key=lambda layer: importance[layer])
    section = {"label": method_label(name), "layers": layer_chart(importance), "used": importance[leading] > 0}
    parts: dict[str, list[Array]] = {}
    for condition in table.conditions:
        measured = stage.measure(measured_outputs(table, name, condition))
        if measured.distances is None:
            return {**section, "temperature": None}
        column = to_numpy(measured.distances.values)[:, list(importance).index(leading)]
        both = np.column_stack([column, to_numpy(stage.temperatures(measured))])
        parts.setdefault(level_name(table, condition.level), []).append(both)
    samples = {level: np.concatenate(found) for level, found in parts.items()}
    section["temperature"] = temperature_chart(samples, f"distance to the training data in {leading}")
    section["legend"] = [
        {"label": level, "colour": severity_colour(place, len(samples)), "mean": float(found[:, 1].mean())}
        for place, (level, found) in enumerate(samples.items())
    ]
    return section


def outside_section(table: EvaluationTable) -> dict[str, Any] | None:
    """Return box plots and scores for each data set whose samples belong to none of the classes, if there are any."""
    scores = out_of_domain_scores(table)
    if not scores:
        return None
    sets = []
    for condition in table.out_of_domain:
        rows = [row for row in scores if row["data"] == condition.name]
        confidences = {
            row["method"]: {
                "in-domain": table.pooled(row["method"], 0).confidence,
                condition.name: table.predictions[row["method"], str(condition)].confidence,
            }
            for row in rows
        }
        sets.append(
            {
                "condition": condition,
                "wide": box_chart(confidences),
                "narrow": box_chart(confidences, width=NARROW),
                "rows": rows,
            }
        )
    return {"sets": sets, "metrics": [METRICS[name] for name in OOD_METRICS]}
