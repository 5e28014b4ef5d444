"""The error at each severity of the shift and overall, with and without DAC."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isnan

from markupsafe import Markup

from densecal.calibrators import ORACLE
from densecal.calibrators.registry import method_label
from densecal.display import points
from densecal.evaluation import EvaluationTable
from densecal.metrics import Interval
from densecal.report.comparison import error_text, row_of, style_of
from densecal.report.svg import Canvas, Margin, name_margin, nice_ticks, shortened
from densecal.report.tables import lowest_shown
from densecal.report.text import clean_sets, css_colour, level_name, with_interval

LABEL_GAP = 17.0
LONGEST_END = 21


def severity_chart(table: EvaluationTable, methods: Sequence[str], *, size: tuple[float, float], named: bool) -> Markup:
    """Draw the error of some methods from in-domain data to the strongest shift, each line named at its end."""
    top = shared_top(table, methods)
    margin = Margin(top=28, right=200 if named else 14, bottom=42, left=34)
    canvas = _severity_canvas(table, methods, size, top, margin)
    canvas.y_axis(nice_ticks(top), "error (points)")
    canvas.x_axis(range(len(table.severities)), "severity of the shift", show=_short_names(table))
    for method in methods:
        _draw_method(canvas, table, method)
    if named:
        _label_ends(canvas, table, methods)
    return canvas.render()


def method_panel(table: EvaluationTable, without: str, with_dac: Sequence[str], top: float) -> Markup:
    """Draw one method without and with DAC, on the scale that all panels share."""
    canvas = _severity_canvas(table, [without, *with_dac], (205, 172), top, Margin(10, 10, 26, 30))
    canvas.y_axis([tick for tick in nice_ticks(top, 4) if tick <= top])
    canvas.x_axis(range(len(table.severities)), show=_short_names(table))
    for method in (without, *with_dac):
        _draw_method(canvas, table, method, band=method != without, r=3.2)
    return canvas.render()


def overall_chart(table: EvaluationTable, methods: Sequence[str], *, width: float = 980) -> Markup:
    """Draw the mean of each method over severities: a hollow mark without DAC, a filled one with it; lowest in bold."""
    rows: dict[str, list[str]] = {}
    for method in methods:
        rows.setdefault(row_of(table, method), []).append(method)
    row_height = 54.0 if max(map(len, rows.values())) > 2 else 48.0
    ticks = nice_ticks(max(_upper_end(table.estimate(method)) for method in methods) * 100 * 1.02)
    margin = Margin(top=6, right=44, bottom=42, left=max(104.0, name_margin(map(method_label, rows), width)))
    size = (width, row_height * len(rows) + margin.top + margin.bottom)
    error = _mean_error(table)
    label = f"{error.capitalize()}, without and with DAC."
    canvas = Canvas(size, label, xlim=(0, ticks[-1]), ylim=(0, len(rows)), margin=margin, kind="overall")
    canvas.x_axis(ticks, f"{error} (points)", grid=True)
    lowest = lowest_shown(table.estimate(method) for method in methods)
    for place, (base, variants) in enumerate(rows.items()):
        y = len(rows) - place - 0.5
        canvas.row_name(canvas.y(y) + 4, method_label(base))
        step = 0.3 if len(variants) < 3 else 0.27
        for number, method in enumerate(variants):
            _draw_overall(canvas, table, method, y + step * ((len(variants) - 1) / 2 - number), lowest)
    return canvas.render()


def shared_top(table: EvaluationTable, methods: Sequence[str]) -> float:
    """Return the upper end of an error axis that fits all methods."""
    highest = max(_upper_end(table.estimate(m, severity=s)) for m in methods for s in table.severities)
    return nice_ticks(highest * 100)[-1]


def _mean_error(table: EvaluationTable) -> str:
    """Return the name of the error that `EvaluationTable.estimate` returns without a severity."""
    if len(table.severities) > 1:
        return "mean error over all severities"
    if not table.natural_shifts:
        return "error" if len(table.conditions) == 1 else "mean error over all test sets"
    mean = "mean error" if len(clean_sets(table)) > 1 else "error"
    return f"{mean} on {level_name(table, table.severities[0])}"


def _severity_canvas(
    table: EvaluationTable, methods: Sequence[str], size: tuple[float, float], top: float, margin: Margin
) -> Canvas:
    first, last = table.severities[0], table.severities[-1]
    names = [f"{method_label(m)} from {error_text(table, m, first)} to {error_text(table, m, last)}" for m in methods]
    label = f"Error in points from {level_name(table, first)} to {level_name(table, last)}: {'; '.join(names)}."
    edge, steps = (0.12, len(table.severities) - 1) if len(table.severities) > 1 else (0.5, 0)
    return Canvas(size, label, xlim=(-edge, steps + edge), ylim=(0, top), margin=margin, kind="severity")


def _draw_overall(canvas: Canvas, table: EvaluationTable, method: str, y: float, lowest: str) -> None:
    found = table.estimate(method)
    style, colour = style_of(table, method), css_colour(method)
    if table.has_intervals:
        canvas.line([(found.low * 100, y), (found.high * 100, y)], "whisker", colour=colour)
    tip = f"{style.label}: {with_interval(found)}"
    css = "mark filled" if style.with_dac else "mark"
    canvas.mark((found.estimate * 100, y), style.marker, css, colour=colour, tip=tip, r=5)
    at = (canvas.x(_upper_end(found) * 100) + 9, canvas.y(y) + 4)
    css = "row-value strong" if points(found.estimate) == lowest else "row-value"
    canvas.text(at, points(found.estimate), css, anchor="start", colour=colour)


def _draw_method(canvas: Canvas, table: EvaluationTable, method: str, *, band: bool = True, r: float = 4.2) -> None:
    style, colour = style_of(table, method), css_colour(method)
    found = [table.estimate(method, severity=severity) for severity in table.severities]
    if band and table.has_intervals and len(found) > 1:
        lower = [(place, one.low * 100) for place, one in enumerate(found)]
        upper = [(place, one.high * 100) for place, one in enumerate(found)]
        canvas.area(lower, upper, "band", colour=colour)
    canvas.line([(place, one.estimate * 100) for place, one in enumerate(found)], f"curve {style.line}", colour=colour)
    mark = "mark filled" if style.with_dac else "mark"
    for place, (severity, one) in enumerate(zip(table.severities, found, strict=True)):
        tip = f"{style.label}, {level_name(table, severity)}: {with_interval(one)}"
        canvas.mark((place, one.estimate * 100), style.marker, mark, colour=colour, tip=tip, r=r)


def _label_ends(canvas: Canvas, table: EvaluationTable, methods: Sequence[str]) -> None:
    """Write the name and value of each method at the end of its line, moved apart where they would overlap."""
    found = {method: table.estimate(method, severity=table.severities[-1]) for method in methods}
    lowest = lowest_shown(one for method, one in found.items() if method != ORACLE)
    ordered = sorted(methods, key=lambda method: -found[method].estimate)
    placed: list[float] = []
    for method in ordered:
        y = canvas.y(found[method].estimate * 100)
        placed.append(max(y, placed[-1] + LABEL_GAP) if placed else y)
    overflow = max(0.0, placed[-1] - canvas.bottom)
    for method, y in zip(ordered, placed, strict=True):
        error = points(found[method].estimate)
        css = "end-label strong" if error == lowest and method != ORACLE else "end-label"
        words = f"{shortened(method_label(method), LONGEST_END)}  {error}"
        canvas.text((canvas.right + 10, y - overflow + 4), words, css, anchor="start", colour=css_colour(method))


def _short_names(table: EvaluationTable) -> Callable[[float], str]:
    zero = "clean" if len(clean_sets(table)) == 1 else "none"
    return lambda place: zero if table.severities[int(place)] == 0 else str(table.severities[int(place)])


def _upper_end(found: Interval) -> float:
    return found.estimate if isnan(found.high) else found.high
