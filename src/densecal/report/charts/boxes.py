"""Box plots of confidence on known and on unknown classes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from markupsafe import Markup

from densecal.arrays import Array
from densecal.plots.style import method_style
from densecal.report.svg import Canvas, Margin
from densecal.report.text import percent

ROW_HEIGHT = 46.0
WIDE = 500.0


def box_chart(confidences: Mapping[str, Mapping[str, Array]], *, width: float = 980) -> Markup:
    """Draw two boxes per method: the confidences of in-domain and of out-of-domain data."""
    # A narrow page has no space next to the boxes for a long name, so it is split into two lines.
    names = {method: _lines(method_style(method).label, broken=width < WIDE) for method in confidences}
    longest = max(len(line) for lines in names.values() for line in lines)
    margin = Margin(6, 16, 42, max(104, 14 + 7.2 * longest))
    height = ROW_HEIGHT * len(confidences) + margin.top + margin.bottom
    label = "Confidence on in-domain and out-of-domain data: " + "; ".join(
        f"{method_style(method).label} median " + " and ".join(percent(float(np.median(v))) for v in sets.values())
        for method, sets in confidences.items()
    )
    canvas = Canvas((width, height), label, ylim=(0, len(confidences)), margin=margin, kind="boxes")
    canvas.x_axis([0, 0.25, 0.5, 0.75, 1], "confidence (%)", show=lambda tick: f"{100 * tick:.0f}", grid=True)
    for place, (method, sets) in enumerate(confidences.items()):
        centre = canvas.y(len(confidences) - place - 0.5)
        for line_number, line in enumerate(names[method]):
            y = centre + 4 + 15 * (line_number - (len(names[method]) - 1) / 2)
            canvas.text((canvas.left - 12, y), line, "row-name", anchor="end")
        for (name, values), offset, css in zip(sets.items(), (-9, 9), ("known", "unknown"), strict=True):
            _draw_box(canvas, values, centre + offset, css, f"{method_style(method).label}, {name}")
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
