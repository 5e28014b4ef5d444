"""Error along the severity of the shift, and overall, with and without DAC."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from typing import TYPE_CHECKING

from markupsafe import Markup

from densecal.calibrators.names import UNCALIBRATED, base_method, has_dac
from densecal.plots.style import method_style
from densecal.report.svg import Canvas, Margin, nice_ticks
from densecal.report.words import css_colour, points, severity_name, with_interval

if TYPE_CHECKING:
    from densecal.evaluation import EvaluationTable
    from densecal.metrics import Interval

LABEL_GAP = 17.0


def severity_chart(
    table: EvaluationTable, methods: Sequence[str], *, width: float = 980, height: float = 400, labels: bool = True
) -> Markup:
    """Draw the error of some methods from in-domain data to the strongest shift, each line named at its end."""
    top = _highest(table, methods)
    margin = Margin(top=28, right=190 if labels else 14, bottom=42, left=34)
    canvas = Canvas(width, height, _describe(table, methods), _span(table), (0, top), margin, "severity")
    canvas.y_axis(nice_ticks(top), "error (points)")
    places = range(len(table.severities))
    canvas.x_axis(places, "severity of the shift", show=lambda place: _short_name(table.severities[int(place)]))
    for method in methods:
        _draw_method(canvas, table, method)
    if labels:
        _label_ends(canvas, table, methods)
    return canvas.render()


def method_panel(table: EvaluationTable, without: str, with_dac: Sequence[str], top: float) -> Markup:
    """Draw one method without and with DAC, on the scale that all panels share."""
    canvas = Canvas(
        205, 172, _describe(table, [without, *with_dac]), _span(table), (0, top), Margin(10, 10, 26, 30), "panel"
    )
    canvas.y_axis([tick for tick in nice_ticks(top, 4) if tick <= top])
    canvas.x_axis(range(len(table.severities)), show=lambda place: _short_name(table.severities[int(place)]))
    for method in (without, *with_dac):
        _draw_method(canvas, table, method, band=method != without, r=3.2)
    return canvas.render()


def overall_chart(table: EvaluationTable, methods: Sequence[str], *, width: float = 980) -> Markup:
    """Draw each method's mean over severities: a hollow mark without DAC, a filled one with it."""
    bases = list(dict.fromkeys(base_method(method) for method in methods))
    row = 54.0 if max(_variants(methods, base) for base in bases) > 2 else 48.0
    top = max(_upper_end(table.estimate(method)) for method in methods) * 100 * 1.02
    margin = Margin(top=6, right=44, bottom=42, left=104)
    height = row * len(bases) + margin.top + margin.bottom
    error = _mean_error(table)
    label = f"{error.capitalize()}, without and with DAC."
    canvas = Canvas(width, height, label, (0, nice_ticks(top)[-1]), (0, len(bases)), margin, "overall")
    canvas.x_axis(nice_ticks(top), f"{error} (points)", grid=True)
    for place, base in enumerate(bases):
        y = len(bases) - place - 0.5
        canvas.text(canvas.left - 12, canvas.y(y) + 4, method_style(base).label, "row-name", anchor="end")
        pair = [method for method in methods if base_method(method) == base]
        step = 0.3 if len(pair) < 3 else 0.27
        for number, method in enumerate(pair):
            _draw_overall(canvas, table, method, y + step * ((len(pair) - 1) / 2 - number))
    return canvas.render()


def _mean_error(table: EvaluationTable) -> str:
    """Name what the means are taken over, if there is more than one of it."""
    if len(table.severities) > 1:
        return "mean error over all severities"
    return "error" if len(table.conditions) == 1 else "mean error over all test sets"


def _variants(methods: Sequence[str], base: str) -> int:
    return sum(base_method(method) == base for method in methods)


def _draw_overall(canvas: Canvas, table: EvaluationTable, method: str, y: float) -> None:
    found = table.estimate(method)
    style, colour = method_style(method), css_colour(method)
    if table.has_intervals:
        canvas.line([(found.low * 100, y), (found.high * 100, y)], "whisker", colour=colour)
    tip = f"{style.label}: {with_interval(found)}"
    css = "mark filled" if style.with_dac else "mark"
    canvas.mark(found.estimate * 100, y, style.marker, css, colour=colour, tip=tip, r=5)
    value = "row-value strong" if style.with_dac else "row-value"
    canvas.text(
        canvas.x(_upper_end(found) * 100) + 9,
        canvas.y(y) + 4,
        points(found.estimate),
        value,
        anchor="start",
        colour=colour,
    )


def _draw_method(canvas: Canvas, table: EvaluationTable, method: str, *, band: bool = True, r: float = 4.2) -> None:
    style, colour = method_style(method), css_colour(method)
    found = [table.estimate(method, severity=severity) for severity in table.severities]
    if band and table.has_intervals and len(found) > 1:
        lower = [(place, one.low * 100) for place, one in enumerate(found)]
        upper = [(place, one.high * 100) for place, one in enumerate(found)]
        canvas.area(lower, upper, "band", colour=colour)
    css = "curve" if style.with_dac else "curve dotted" if method == UNCALIBRATED else "curve dashed"
    canvas.line([(place, one.estimate * 100) for place, one in enumerate(found)], css, colour=colour)
    for place, one in enumerate(found):
        where = severity_name(table.severities[place])
        tip = f"{style.label}, {where}: {with_interval(one)}"
        mark = "mark filled" if style.with_dac else "mark"
        canvas.mark(place, one.estimate * 100, style.marker, mark, colour=colour, tip=tip, r=r)


def _label_ends(canvas: Canvas, table: EvaluationTable, methods: Sequence[str]) -> None:
    """Write each method's name and value beside the end of its line, pushed apart where they would touch."""
    last = table.severities[-1]
    ends = sorted((canvas.y(table.estimate(m, severity=last).estimate * 100), m) for m in methods)
    placed: list[float] = []
    for y, _ in ends:
        placed.append(max(y, placed[-1] + LABEL_GAP) if placed else y)
    overflow = max(0.0, placed[-1] - canvas.bottom)
    for (_, method), y in zip(ends, placed, strict=True):
        value = table.estimate(method, severity=last).estimate
        css = "end-label strong" if has_dac(method) else "end-label"
        words = f"{method_style(method).label}  {points(value)}"
        canvas.text(canvas.right + 10, y - overflow + 4, words, css, anchor="start", colour=css_colour(method))


def _span(table: EvaluationTable) -> tuple[float, float]:
    last = len(table.severities) - 1
    return (-0.12, last + 0.12) if last else (-0.5, 0.5)


def _highest(table: EvaluationTable, methods: Sequence[str]) -> float:
    highest = max(_upper_end(table.estimate(m, severity=s)) for m in methods for s in table.severities)
    return nice_ticks(highest * 100)[-1]


def _upper_end(found: Interval) -> float:
    return found.estimate if isnan(found.high) else found.high


def shared_top(table: EvaluationTable, methods: Sequence[str]) -> float:
    """Return the upper end of an error axis that fits all methods."""
    return _highest(table, methods)


def _short_name(severity: int) -> str:
    return "clean" if severity == 0 else str(severity)


def _describe(table: EvaluationTable, methods: Sequence[str]) -> str:
    first, last = table.severities[0], table.severities[-1]
    parts = []
    for method in methods:
        start, end = (points(table.estimate(method, severity=s).estimate) for s in (first, last))
        parts.append(f"{method_style(method).label} from {start} to {end}")
    return f"Error in points from {severity_name(first)} to {severity_name(last)}: {'; '.join(parts)}."
