"""Boxplots of confidence on known and on unknown classes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from markupsafe import Markup

from densecal.plots.style import method_style
from densecal.report.svg import Canvas, Margin, number
from densecal.report.words import percent

ROW = 46.0
WIDE = 500.0


def box_chart(confidences: Mapping[str, Mapping[str, Any]], *, width: float = 980) -> Markup:
    """Draw two boxes a method: in-domain confidences, and those of data that belong to no class."""
    # A narrow page has no room beside the boxes for a long name, so it goes over two lines.
    names = {method: _lines(method_style(method).label, broken=width < WIDE) for method in confidences}
    longest = max(len(line) for lines in names.values() for line in lines)
    margin = Margin(6, 16, 42, max(104, 14 + 7.2 * longest))
    height = ROW * len(confidences) + margin.top + margin.bottom
    label = "Confidence on in-domain and out-of-domain data: " + "; ".join(
        f"{method_style(method).label} median " + " and ".join(percent(float(np.median(v))) for v in sets.values())
        for method, sets in confidences.items()
    )
    canvas = Canvas(width, height, label, (0, 1), (0, len(confidences)), margin, "boxes")
    canvas.x_axis([0, 0.25, 0.5, 0.75, 1], "confidence (%)", show=lambda tick: f"{100 * tick:.0f}", grid=True)
    for place, (method, sets) in enumerate(confidences.items()):
        centre = canvas.y(len(confidences) - place - 0.5)
        for place_of_line, line in enumerate(names[method]):
            y = centre + 4 + 15 * (place_of_line - (len(names[method]) - 1) / 2)
            canvas.text(canvas.left - 12, y, line, "row-name", anchor="end")
        for (name, values), offset, css in zip(sets.items(), (-9, 9), ("known", "unknown"), strict=False):
            _draw_box(canvas, np.asarray(values, float), centre + offset, css, f"{method_style(method).label}, {name}")
    return canvas.render()


def _lines(label: str, *, broken: bool) -> list[str]:
    first, plus, rest = label.partition(" + ")
    return [first, f"+ {rest}"] if broken and plus and len(label) > 12 else [label]


def _draw_box(canvas: Canvas, values: Any, y: float, css: str, name: str) -> None:
    low, first, median, third, high = (float(q) for q in np.quantile(values, [0.05, 0.25, 0.5, 0.75, 0.95]))
    canvas.pixel_line([(canvas.x(low), y), (canvas.x(high), y)], f"whisker {css}")
    tip = f"{name}: median {percent(median)}, half of the samples between {percent(first)} and {percent(third)}"
    size = f'width="{number(max(1.0, canvas.x(third) - canvas.x(first)))}" height="13"'
    place = f'x="{number(canvas.x(first))}" y="{number(y - 6.5)}" {size} rx="2"'
    canvas.add(f'<rect class="box {css}" {place}><title>{Markup.escape(tip)}</title></rect>')
    canvas.pixel_line([(canvas.x(median), y - 6.5), (canvas.x(median), y + 6.5)], f"median {css}")
