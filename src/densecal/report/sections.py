"""The report's sections as data: which drawings stand where, and what each level of the slider shows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from markupsafe import Markup

from densecal.arrays import to_numpy
from densecal.calibrators.base import Calibrator
from densecal.calibrators.names import (
    DAC,
    ORACLE,
    SHIFT_FITTED,
    UNCALIBRATED,
    base_method,
    has_dac,
    is_shift_fitted,
    method_label,
)
from densecal.evaluation.conditions import Condition, density_stage
from densecal.metrics import METRICS, expected_calibration_error, ood_scores
from densecal.plots.style import method_style
from densecal.report.charts.boxes import box_chart
from densecal.report.charts.density import layer_chart, severity_colour, temperature_chart
from densecal.report.charts.reliability import reliability_chart, right_and_wrong, right_wrong_histogram
from densecal.report.charts.severity import method_panel, overall_chart, severity_chart, shared_top
from densecal.report.verdict import Verdict
from densecal.report.words import severity_name

if TYPE_CHECKING:
    from densecal.evaluation import EvaluationTable

NARROW = 350


def curves_section(table: EvaluationTable, verdict: Verdict) -> dict[str, Any]:
    """Return the error along severity: the methods compared, and every pair without and with DAC."""
    main = compared_methods(table, verdict)
    if ORACLE in table.methods:
        main.append(ORACLE)
    real = [method for method in table.methods if method != ORACLE]
    pairs: dict[str, list[str]] = {}
    for method in real:
        if has_dac(method) and base_method(method) in real:
            pairs.setdefault(base_method(method), []).append(method)
    top = shared_top(table, real)
    shifted = len(table.severities) > 1
    return {
        "wide": severity_chart(table, main),
        "narrow": severity_chart(table, main, width=NARROW, height=300, labels=False),
        "legend": [legend_entry(name) for name in main],
        "panels": [
            {"name": method_label(base), "chart": method_panel(table, base, with_dac, top), "method": base}
            for base, with_dac in pairs.items()
        ]
        if shifted
        else [],
        "overall_wide": overall_chart(table, real),
        "overall_narrow": overall_chart(table, real, width=NARROW),
        "shifted": shifted,
        "shift_fitted": any(is_shift_fitted(method) for method in real),
        "oracle": ORACLE in table.methods,
    }


def compared_methods(table: EvaluationTable, verdict: Verdict) -> list[str]:
    """Return the methods that the main figures show: as it is, without DAC, with the paper's DAC, the method judged."""
    paper = verdict.method.replace(SHIFT_FITTED, DAC)
    wanted = dict.fromkeys((UNCALIBRATED, verdict.reference, paper, verdict.method))
    return [name for name in wanted if name in table.methods]


def legend_entry(method: str) -> dict[str, Any]:
    """Return what a legend shows of a method."""
    style = method_style(method)
    line = "solid" if style.with_dac else "dotted" if method == UNCALIBRATED else "dashed"
    return {"label": style.label, "method": method, "line": line}


def reliability_section(table: EvaluationTable, verdict: Verdict) -> dict[str, Any]:
    """Return one level a severity: the methods compared, and all methods behind a fold."""
    main = compared_methods(table, verdict)
    others = [name for name in table.methods if name not in main and name != ORACLE]
    levels = []
    for severity in table.severities:
        ylim = _histogram_limits(table, main, severity)
        levels.append(
            {
                "severity": severity,
                "name": severity_name(severity),
                "panels": [_reliability_panel(table, name, severity, ylim) for name in main],
                "others": [_reliability_panel(table, name, severity, None) for name in others],
                "print": severity in (table.severities[0], table.severities[-1]),
                "samples": len(table.pooled(main[0], severity).confidence),
                "conditions": [c.name for c in table.conditions if c.severity == severity],
            }
        )
    return {"levels": levels, "others": [method_label(name) for name in others]}


def _histogram_limits(table: EvaluationTable, methods: list[str], severity: int) -> tuple[float, float]:
    """Return the ends of the histograms' axis, shared by the panels of a level so that they can be compared."""
    shares = [right_and_wrong(table.pooled(method, severity)) for method in methods]
    up, down = (max(0.02, *(float(pair[side].max()) for pair in shares)) for side in (0, 1))
    # Neither side may become too thin for its label.
    return -max(down, up / 4) * 1.05, max(up, down / 4) * 1.05


def _reliability_panel(
    table: EvaluationTable, method: str, severity: int, ylim: tuple[float, float] | None
) -> dict[str, Any]:
    judged = table.pooled(method, severity)
    label = method_label(method)
    return {
        "label": label,
        "method": method,
        "chart": reliability_chart(judged, f"{label}, {severity_name(severity)}"),
        "histogram": Markup() if ylim is None else right_wrong_histogram(judged, label, ylim),
        "ece": expected_calibration_error(judged.confidence, judged.correct),
        "accuracy": float(judged.correct.mean()),
        "confidence": float(judged.confidence.mean()),
        "pooled": sum(condition.severity == severity for condition in table.conditions) > 1,
    }


def density_section(
    table: EvaluationTable, calibrators: Mapping[str, Calibrator], verdict: Verdict
) -> dict[str, Any] | None:
    """Return layer importance and temperature against distance of the DAC that was judged, if there is one."""
    named = [verdict.method, *calibrators]
    stage = next((s for name in named if name in calibrators and (s := density_stage(calibrators[name]))), None)
    if stage is None or not getattr(stage, "layer_importance_", None):
        return None
    importance: dict[str, float] = stage.layer_importance_
    used = any(share > 0 for share in importance.values())
    section: dict[str, Any] = {"layers": layer_chart(importance), "used": used, "temperature": None}
    measured = _temperatures(table, stage)
    if measured is not None:
        distances, temperatures = measured
        count = len(temperatures)
        leading = max(importance, key=lambda layer: importance[layer])
        name = f"distance to the training data in {leading}"
        section["temperature"] = temperature_chart(distances, temperatures, name=name)
        section["legend"] = [
            {"label": severity_name(severity), "colour": severity_colour(place, count), "mean": float(values.mean())}
            for place, (severity, values) in enumerate(temperatures.items())
        ]
    return section


def _temperatures(table: EvaluationTable, stage: Any) -> tuple[dict[int, Any], dict[int, Any]] | None:
    """Return each severity's distances, in the layer that counts most, and temperatures."""
    leading = int(np.argmax(list(stage.layer_importance_.values())))
    distances: dict[int, list[Any]] = {}
    temperatures: dict[int, list[Any]] = {}
    for condition in table.conditions:
        measured = _distances(condition, stage)
        if measured is None:
            return None
        distances.setdefault(condition.severity, []).append(measured[:, leading])
        temperature = stage.temperatures(distances=measured, logits=condition.outputs.logits)
        temperatures.setdefault(condition.severity, []).append(to_numpy(temperature))
    return (
        {severity: np.concatenate(parts) for severity, parts in distances.items()},
        {severity: np.concatenate(parts) for severity, parts in temperatures.items()},
    )


def _distances(condition: Condition, stage: Any) -> Any | None:
    if condition.distances is not None:
        return to_numpy(condition.distances)
    if stage.bank is None or not condition.outputs.features:
        return None
    return to_numpy(stage.bank.distances(condition.outputs.features))


def outside_section(table: EvaluationTable) -> dict[str, Any] | None:
    """Return boxplots and measures for data that belong to none of the classes, if there are any."""
    if not table.out_of_domain or 0 not in table.severities:
        return None
    sets = []
    for condition in table.out_of_domain:
        methods = [m for m in table.methods if (m, str(condition)) in table.judged]
        scores = {
            method: {
                "in-domain": table.pooled(method, 0).confidence,
                condition.name: table.judged[method, str(condition)].confidence,
            }
            for method in methods
        }
        rows = [{"method": method, **ood_scores(*pair.values()).as_dict()} for method, pair in scores.items()]
        sets.append(
            {
                "name": condition.name,
                "samples": len(condition.outputs),
                "wide": box_chart(scores),
                "narrow": box_chart(scores, width=NARROW),
                "rows": [{**row, "label": method_label(str(row["method"]))} for row in rows],
            }
        )
    names = ("fpr_at_95_tpr", "detection_error", "auroc", "aupr_in", "aupr_out")
    return {"sets": sets, "measures": [METRICS[name] for name in names]}
