"""Reliability diagrams with the histogram of right and wrong answers below."""

from __future__ import annotations

from typing import Any

import numpy as np
from markupsafe import Markup

from densecal.evaluation import Judged
from densecal.metrics import ReliabilityCurve, expected_calibration_error, reliability_curve
from densecal.plots.reliability import accuracy_band
from densecal.report.svg import Canvas, Margin
from densecal.report.words import counted, percent, points

SIZE = 268.0
HISTOGRAM_BINS = 20
FEW = 15


def reliability_chart(judged: Judged, name: str, *, n_bins: int = 15) -> Markup:
    """Draw accuracy against confidence; the hatched gap is what the ECE adds up."""
    curve = reliability_curve(judged.confidence, judged.correct, n_bins=n_bins)
    error = expected_calibration_error(judged.confidence, judged.correct, n_bins=n_bins)
    label = (
        f"Reliability of {name}: mean confidence {percent(float(judged.confidence.mean()))}, accuracy "
        f"{percent(float(judged.correct.mean()))}, error {points(error)} points."
    )
    canvas = Canvas(SIZE, SIZE, label, margin=Margin(8, 8, 22, 34), kind="reliability")
    ticks = [0, 0.25, 0.5, 0.75, 1]
    canvas.y_axis(ticks, show=lambda tick: f"{100 * tick:.0f}")
    canvas.x_axis(ticks, show=lambda tick: f"{100 * tick:.0f}", grid=True)
    _draw_bins(canvas, curve)
    canvas.line([(0, 0), (1, 1)], "diagonal")
    canvas.text(canvas.left + 8, canvas.top + 17, "right answers (%)", "axis-name", anchor="start")
    return canvas.render()


def _draw_bins(canvas: Canvas, curve: ReliabilityCurve) -> None:
    low, high = accuracy_band(curve, n_resamples=400)
    # A bin of few samples is drawn faintly: what it says is mostly chance.
    largest = float(np.max(curve.counts))
    for place, count in enumerate(curve.counts):
        if not count:
            continue
        left, right = float(curve.edges[place]) + 0.004, float(curve.edges[place + 1]) - 0.004
        accuracy, confidence = float(curve.accuracy[place]), float(curve.confidence[place])
        faint = " faint" if count < max(FEW, 0.002 * largest) else ""
        tip = f"says {percent(confidence)}, is right {percent(accuracy)}; {counted(int(count), 'sample')}"
        canvas.box(left, 0, right, accuracy, f"bar{faint}", tip=tip)
        gap = "over" if confidence > accuracy else "under"
        canvas.box(left, accuracy, right, confidence, f"gap {gap}{faint}", tip=tip)
        centre = (left + right) / 2
        canvas.line([(centre, float(low[place])), (centre, float(high[place]))], f"whisker{faint}")


def right_and_wrong(judged: Judged) -> tuple[Any, Any]:
    """Return the share of all samples in each bin of confidence, for right and for wrong answers."""
    edges = np.linspace(0, 1, HISTOGRAM_BINS + 1)
    right = np.histogram(judged.confidence[judged.correct], edges)[0] / len(judged.correct)
    wrong = np.histogram(judged.confidence[~judged.correct], edges)[0] / len(judged.correct)
    return right, wrong


def right_wrong_histogram(judged: Judged, name: str, ylim: tuple[float, float]) -> Markup:
    """Draw how sure the classifier was when right (up) and when wrong (down)."""
    edges = np.linspace(0, 1, HISTOGRAM_BINS + 1)
    right, wrong = right_and_wrong(judged)
    sure_right, sure_wrong = _sure(judged, judged.correct), _sure(judged, ~judged.correct)
    label = (
        f"{name} gives {sure_right} of its right and {sure_wrong} of its wrong answers with more than 90 % confidence."
    )
    canvas = Canvas(SIZE, 122, label, (0, 1), ylim, Margin(6, 8, 36, 34), "histogram")
    for place in range(HISTOGRAM_BINS):
        left, end = edges[place] + 0.003, edges[place + 1] - 0.003
        for share, sign, css in ((right[place], 1, "right"), (wrong[place], -1, "wrong")):
            if share > 0:
                canvas.box(left, 0, end, sign * share, css, tip=f"{percent(share, 1)} of all samples, {css}")
    canvas.line([(0, 0), (1, 0)], "zero")
    canvas.x_axis([0, 0.25, 0.5, 0.75, 1], "confidence (%)", show=lambda tick: f"{100 * tick:.0f}")
    canvas.text(canvas.left + 8, canvas.y(0) - 6, "right", "side-label right", anchor="start")
    canvas.text(canvas.left + 8, canvas.y(0) + 14, "wrong", "side-label wrong", anchor="start")
    return canvas.render()


def _sure(judged: Judged, rows: Any) -> str:
    chosen = judged.confidence[rows]
    return percent(float((chosen > 0.9).mean())) if len(chosen) else "none"
