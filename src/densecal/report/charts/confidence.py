"""Charts of the confidences: reliability, right and wrong predictions, known and unknown classes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
from markupsafe import Markup

from densecal.arrays import Array
from densecal.calibrators.registry import method_label
from densecal.display import counted, percent, points
from densecal.metrics import Evaluation, ReliabilityCurve
from densecal.plots.confidence import accuracy_band, right_and_wrong
from densecal.report.svg import WIDE, Canvas, Margin, in_percent, name_margin

SIZE = 268.0
TICKS = (0, 0.25, 0.5, 0.75, 1)
FEW_SAMPLES = 15
ROW_HEIGHT = 46.0


def reliability_chart(curve: ReliabilityCurve, found: Evaluation, name: str) -> Markup:
    """Draw accuracy against confidence; the shaded gaps add up to the ECE."""
    label = (
        f"Reliability of {name}: mean confidence {percent(found.mean_confidence)}, accuracy {percent(found.accuracy)}, "
        f"error {points(found.ece)} points."
    )
    canvas = Canvas((SIZE, SIZE), label, margin=Margin(8, 8, 22, 34), kind="reliability")
    canvas.y_axis(TICKS, show=in_percent)
    canvas.x_axis(TICKS, show=in_percent, grid=True)
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
    # Both sides need room for a label.
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
    canvas.x_axis(TICKS, "confidence (%)", show=in_percent)
    canvas.text((canvas.left + 8, canvas.y(0) - 6), "right", "side-label right", anchor="start")
    canvas.text((canvas.left + 8, canvas.y(0) + 14), "wrong", "side-label wrong", anchor="start")
    return canvas.render()


def box_chart(confidences: Mapping[str, Mapping[str, Array]], *, width: float = 980) -> Markup:
    """Draw two boxes per method: the confidences of in-domain and of out-of-domain data."""
    # A narrow page has no space next to the boxes for a long name, so it is split into two lines.
    names = {method: _lines(method_label(method), broken=width < WIDE) for method in confidences}
    margin = Margin(
        6, 16, 42, max(104, name_margin((line for lines in names.values() for line in lines), width, share=0.4))
    )
    height = ROW_HEIGHT * len(confidences) + margin.top + margin.bottom
    label = "Confidence on in-domain and out-of-domain data: " + "; ".join(
        f"{method_label(method)} median " + " and ".join(percent(float(np.median(v))) for v in sets.values())
        for method, sets in confidences.items()
    )
    canvas = Canvas((width, height), label, ylim=(0, len(confidences)), margin=margin, kind="boxes")
    canvas.x_axis([0, 0.25, 0.5, 0.75, 1], "confidence (%)", show=in_percent, grid=True)
    for place, (method, sets) in enumerate(confidences.items()):
        centre = canvas.y(len(confidences) - place - 0.5)
        for line_number, line in enumerate(names[method]):
            y = centre + 4 + 15 * (line_number - (len(names[method]) - 1) / 2)
            canvas.row_name(y, line)
        for (name, values), offset, css in zip(sets.items(), (-9, 9), ("known", "unknown"), strict=True):
            _draw_box(canvas, values, centre + offset, css, f"{method_label(method)}, {name}")
    return canvas.render()


def _lines(label: str, *, broken: bool) -> list[str]:
    first, plus, rest = label.partition(" + ")
    return [first, f"+ {rest}"] if broken and plus and len(label) > 12 else [label]


def _draw_box(canvas: Canvas, values: Array, y: float, css: str, name: str) -> None:
    low, first, median, third, high = (float(q) for q in np.quantile(values, [0.05, 0.25, 0.5, 0.75, 0.95]))
    canvas.pixel_line([(canvas.x(low), y), (canvas.x(high), y)], f"whisker {css}")
    tip = f"{name}: median {percent(median)}, half of the samples between {percent(first)} and {percent(third)}"
    size = (max(1.0, canvas.x(third) - canvas.x(first)), 13.0)
    canvas.pixel_box(canvas.x(first), y - 6.5, size, f"box {css}", tip=tip, rx=2)
    canvas.pixel_line([(canvas.x(median), y - 6.5), (canvas.x(median), y + 6.5)], f"median {css}")
