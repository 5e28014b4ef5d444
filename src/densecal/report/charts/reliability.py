"""Reliability diagrams, and histograms of right and wrong predictions."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from markupsafe import Markup

from densecal.arrays import Array
from densecal.metrics import Evaluation, ReliabilityCurve
from densecal.plots.confidence import right_and_wrong
from densecal.plots.reliability import accuracy_band
from densecal.report.svg import Canvas, Margin
from densecal.report.text import counted, percent, points

SIZE = 268.0
TICKS = (0, 0.25, 0.5, 0.75, 1)
FEW_SAMPLES = 15


def reliability_chart(curve: ReliabilityCurve, found: Evaluation, name: str) -> Markup:
    """Draw accuracy against confidence; the shaded gaps add up to the ECE."""
    label = (
        f"Reliability of {name}: mean confidence {percent(found.mean_confidence)}, accuracy {percent(found.accuracy)}, "
        f"error {points(found.ece)} points."
    )
    canvas = Canvas((SIZE, SIZE), label, margin=Margin(8, 8, 22, 34), kind="reliability")
    canvas.y_axis(TICKS, show=lambda tick: f"{100 * tick:.0f}")
    canvas.x_axis(TICKS, show=lambda tick: f"{100 * tick:.0f}", grid=True)
    _draw_bins(canvas, curve)
    canvas.line([(0, 0), (1, 1)], "diagonal")
    canvas.text((canvas.left + 8, canvas.top + 17), "accuracy (%)", "axis-name", anchor="start")
    return canvas.render()


def _draw_bins(canvas: Canvas, curve: ReliabilityCurve) -> None:
    low, high = accuracy_band(curve, n_resamples=400)
    # A bin with few samples is drawn faintly, because its accuracy is mostly noise.
    few = max(FEW_SAMPLES, 0.002 * float(np.max(curve.counts)))
    for place, count in enumerate(curve.counts):
        if not count:
            continue
        left, right = float(curve.edges[place]) + 0.004, float(curve.edges[place + 1]) - 0.004
        accuracy, confidence = float(curve.accuracy[place]), float(curve.confidence[place])
        faint = " faint" if count < few else ""
        tip = f"confidence {percent(confidence)}, accuracy {percent(accuracy)}; {counted(int(count), 'sample')}"
        canvas.box((left, right), (0, accuracy), f"bar{faint}", tip=tip)
        gap = "over" if confidence > accuracy else "under"
        canvas.box((left, right), (accuracy, confidence), f"gap {gap}{faint}", tip=tip)
        centre = (left + right) / 2
        canvas.line([(centre, float(low[place])), (centre, float(high[place]))], f"whisker{faint}")


def histogram_limits(several: Iterable[tuple[Array, Array]]) -> tuple[float, float]:
    """Return the y limits that the histograms of several methods share, to make them comparable."""
    shares = [right_and_wrong(*predictions)[1:] for predictions in several]
    up, down = (max(0.02, *(float(pair[side].max()) for pair in shares)) for side in (0, 1))
    # Both sides must have room for a label.
    return -max(down, up / 4) * 1.05, max(up, down / 4) * 1.05


def right_wrong_histogram(confidence: Array, correct: Array, name: str, *, ylim: tuple[float, float]) -> Markup:
    """Draw the confidences of right (upwards) and wrong predictions (downwards)."""
    edges, right, wrong = right_and_wrong(confidence, correct)
    sides = (confidence[correct], confidence[~correct])
    sure = [percent(float((side > 0.9).mean())) if len(side) else "none" for side in sides]
    label = f"{name}: {sure[0]} of the right and {sure[1]} of the wrong predictions have more than 90 % confidence."
    canvas = Canvas((SIZE, 122), label, ylim=ylim, margin=Margin(6, 8, 36, 34), kind="histogram")
    for shares, sign, css in ((right, 1, "right"), (wrong, -1, "wrong")):
        for place in shares.nonzero()[0]:
            tip = f"{percent(shares[place], 1)} of all samples, {css}"
            canvas.box((edges[place] + 0.003, edges[place + 1] - 0.003), (0, sign * shares[place]), css, tip=tip)
    canvas.line([(0, 0), (1, 0)], "zero")
    canvas.x_axis(TICKS, "confidence (%)", show=lambda tick: f"{100 * tick:.0f}")
    canvas.text((canvas.left + 8, canvas.y(0) - 6), "right", "side-label right", anchor="start")
    canvas.text((canvas.left + 8, canvas.y(0) + 14), "wrong", "side-label wrong", anchor="start")
    return canvas.render()
