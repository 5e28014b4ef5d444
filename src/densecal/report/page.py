"""The report: one self-contained HTML file that shows how well the confidences are calibrated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

from densecal import __version__
from densecal.calibrators.base import Calibrator
from densecal.calibrators.registry import method_label
from densecal.calibrators.state import learned_numbers
from densecal.display import counted, percent, points
from densecal.evaluation import Condition, EvaluationTable, evaluate_conditions
from densecal.evaluation.predictions import has_own_confidence
from densecal.io.atomic_files import atomic_write, creation_time
from densecal.outputs import Outputs
from densecal.plots.style import SEVERITY_DARK, SEVERITY_LIGHT, method_style
from densecal.report import sections, text
from densecal.report.comparison import Level, better_than, style_of, told_shifts
from densecal.report.estimates import estimate_sets, estimates_section
from densecal.report.tables import lowest_shown, metric_heading, metric_text, metric_value, same_methods, severity_table
from densecal.report.verdict import A_POINT, judge

if TYPE_CHECKING:
    from jinja2 import Environment

FOLDER = Path(__file__).parent


def write_report(
    path: str | Path,
    calibrators: Mapping[str, Calibrator],
    conditions: Sequence[Condition],
    *,
    title: str = "Can these confidences be trusted?",
    table: EvaluationTable | None = None,
    validation: Outputs | None = None,
    warnings: Iterable[str] = (),
    metadata: Mapping[str, str] | None = None,
) -> EvaluationTable:
    """Write a self-contained HTML report of calibrators evaluated on test sets, and return the evaluation.

    Parameters
    ----------
    path : str or path
        The file to write; the write is atomic.
    calibrators : mapping of name to fitted Calibrator
        Names such as ``"ets"`` and ``"dac+ets"`` are shown as a pair, without and with DAC.
    conditions : sequence of Condition
        Test sets, from clean to strongly shifted; out-of-domain sets have their own section.
    title : str
        The heading of the page.
    table : EvaluationTable, optional
        The evaluation to report, with the metrics ece, accuracy and mean_confidence; by default it is computed.
    validation : Outputs, optional
        The data on which the calibrators were fitted; the report warns if it is too small or lacks a class.
    warnings : iterable of str
        Warnings to show, such as those of the fit.
    metadata : mapping of str to str, optional
        Additional metadata of the data to show.

    """
    table = table or evaluate_conditions(calibrators, conditions)
    html = render_report(table, calibrators, title=title, validation=validation, warnings=warnings, metadata=metadata)
    with atomic_write(path) as temporary:
        temporary.write_text(html, encoding="utf-8")
    return table


def render_report(
    table: EvaluationTable,
    calibrators: Mapping[str, Calibrator],
    *,
    title: str,
    validation: Outputs | None = None,
    warnings: Iterable[str] = (),
    metadata: Mapping[str, str] | None = None,
) -> str:
    """Return the page as a string; the arguments are those of `write_report`."""
    verdict = judge(table)
    context = {
        "colours": Markup(_colours(table.methods)),
        "table": table,
        "verdict": verdict,
        "estimates": estimates_section(estimate_sets(table, calibrators, verdict.method)),
        "a_point": A_POINT,
        "tiles": [*_tiles(table, sections.compared_methods(table, verdict), told_shifts(table, verdict.method))],
        "cautions": text.cautions(table, calibrators, validation=validation, given=warnings),
        "curves": sections.curves_section(table, verdict),
        "reliability": sections.reliability_section(table, verdict),
        "density": sections.density_section(table, calibrators, verdict),
        "outside": sections.outside_section(table),
        "severity_table": severity_table(table),
        "data_metadata": text.data_metadata(table, validation, metadata or {}),
        "calibrators": calibrators,
        "own_confidence": [method_label(name) for name, one in calibrators.items() if has_own_confidence(one)],
        "same_methods": [text.listed([*map(method_label, names)]) for names in same_methods(table)],
        "intervals_explained": text.INTERVALS_EXPLAINED,
    }
    return render_page("report.html", title, context)


def render_page(template: str, title: str, context: Mapping[str, Any]) -> str:
    """Return a page of the given template, with the style and the script that all pages share."""
    shared = {
        "title": title,
        "version": __version__,
        "date": creation_time().strftime("%Y-%m-%d %H:%M UTC"),
        "colours": "",
        "style": Markup((FOLDER / "style.css").read_text(encoding="utf-8")),
        "script": Markup((FOLDER / "script.js").read_text(encoding="utf-8")),
    }
    return _template_environment().get_template(template).render({**shared, **context})


@cache
def _template_environment() -> Environment:
    """Return the templates of the pages, with the filters that they use."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"points": points, "percent": percent, "counted": counted, "label": method_label}
    environment.filters |= {"colour": text.css_colour, "learned": learned_numbers, "bank": text.bank_text}
    environment.filters |= {"heading": metric_heading, "in_unit": metric_value, "metric_text": metric_text}
    return environment


def _colours(methods: Iterable[str]) -> str:
    """Return the colours of methods and severities as CSS custom properties, for light and dark pages."""
    styles = {text.css_name(method): method_style(method) for method in methods}
    light = "".join(f"{name}:{style.colour};" for name, style in styles.items())
    dark = "".join(f"{name}:{style.dark_colour};" for name, style in styles.items())
    light += "".join(f"--s-{place}:{colour};" for place, colour in enumerate(SEVERITY_LIGHT))
    dark += "".join(f"--s-{place}:{colour};" for place, colour in enumerate(SEVERITY_DARK))
    return (
        f":root{{{light}}}@media (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{dark}}}}}"
        f":root[data-theme=dark]{{{dark}}}@media print{{:root,:root[data-theme=dark]{{{light}}}}}"
    )


def _tiles(table: EvaluationTable, shown: Sequence[str], shifts: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield the key figures of the shown methods, and of one that is better: overall, and on the main test sets."""
    first, last = table.severities[0], table.severities[-1]
    levels: list[Level] = [last] if first == last else [None, last]
    levels += [0] if first == 0 != last else []
    for level in (*levels, *shifts):
        place = "over all severities" if level is None else text.level_place(table, level)
        best = better_than(table, shown, level)
        methods = shown if best is None else [*shown, best]
        found = {name: table.estimate(name, severity=level) for name in methods}
        top, lowest = max(one.estimate for one in found.values()) or 1.0, lowest_shown(found.values())
        rows = [
            {
                "method": name,
                "style": style_of(table, name),
                "found": one,
                "best": points(one.estimate) == lowest,
                "width": 100 * one.estimate / top,
            }
            for name, one in found.items()
        ]
        yield {"title": f"{place[0].upper()}{place[1:]}", "rows": rows}
