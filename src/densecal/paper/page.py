"""The reproduction page: paper and reproduction side by side, written from the results alone."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from densecal.appearance import UNCALIBRATED
from densecal.paper.classifiers import CLASSIFIERS
from densecal.paper.methods import DAC, MAIN, label_of
from densecal.paper.page_text import COST, FINDINGS, INTRODUCTION, NOT_RUN, OTHERS, READING, WHY_DIFFERENT
from densecal.paper.protocol import Protocol
from densecal.paper.tables import MEAN_TABLES, dac_helps

if TYPE_CHECKING:
    import pandas as pd

FIGURES = {
    "severity": "ECE by severity (left) and its mean (right), without DAC (dashed, hollow) and with it (solid).",
    "severity-additional": "The same for PTS, IR and DIR.",
    "layer-importance": "Each layer's share of DAC's temperature, from input (left) to logits (right).",
    "all-layers": "DAC's weights along the network: the paper's selected layers, and all of them.",
    "k-sensitivity": "Mean ECE against k; level lines are the methods without DAC.",
    "data-efficiency": "Mean ECE against the share of the validation set; the band spans five random draws.",
    "trade-off": "The same in-domain and at severity 5.",
    "layer-choice": "Mean ECE without DAC, and with DAC on no layer, the logits, the selected and all layers.",
    "reliability": "Confidence minus accuracy, all corruptions and severities together, 15 bins of equal mass.",
    "ood-boxplots": "Confidence on the clean test set and on sets of other classes.",
}


def write_page(
    path: str | Path,
    protocol: Protocol,
    rows: Sequence[str],
    tables: Mapping[str, pd.DataFrame],
    *,
    figures: str = "reproduction",
    training: str | Path | None = None,
    others: pd.DataFrame | None = None,
    cost: pd.DataFrame | None = None,
) -> None:
    """Write the page.

    Parameters
    ----------
    path : path
        The Markdown file.
    protocol : Protocol
        Where the results come from.
    rows : sequence of str
        The classifiers that were run.
    tables : mapping of name to DataFrame
        The comparisons that `reproduce` made.
    figures : str
        Folder of the figures, relative to the page.
    training : path, optional
        Folder with CLASSIFIER.json, the facts of the trainings.
    others : DataFrame, optional
        Table 1 of classifiers that the paper does not have.
    cost : DataFrame, optional
        The three steps of a fit and a sample's inference, as `densecal.paper.cost.whole_cost` times them.
    """
    parts = [INTRODUCTION, _trainings(rows, training), "## What it shows\n", _verdict(protocol, rows), READING]
    for name, table in tables.items():
        parts.append(_table_section(name, table, rows))
    if cost is not None:
        parts.append(COST + "\n" + _plain_table(cost))
    if others is not None:
        parts.append(OTHERS + "\n" + _ours_alone(others[others["column"] == "all"], _names(others), 2))
    parts.append("## Figures\n")
    for name, caption in FIGURES.items():
        if (Path(path).parent / figures / f"{name}.svg").exists():
            parts.append(f"![{caption}]({figures}/{name}.svg)\n\n*{caption}*\n")
    parts += [FINDINGS, WHY_DIFFERENT, _not_run(rows)]
    Path(path).write_text("\n".join(part.rstrip() + "\n" for part in parts if part), encoding="utf-8")


def markdown(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Lay out a Markdown table; the first column is text, the others are numbers.

    Examples
    --------
    >>> print(markdown(["method", "ECE"], [["TS", "4.96"]]), end="")
    | method | ECE |
    |---|---:|
    | TS | 4.96 |
    """
    rule = "|---|" + "---:|" * (len(header) - 1)
    body = ["| " + " | ".join(cells) + " |" for cells in lines]
    return "\n".join(["| " + " | ".join(header) + " |", rule, *body]) + "\n"


def number(value: float | None, digits: int = 2, *, sign: bool = False) -> str:
    """Write a number, or a dash where there is none.

    Examples
    --------
    >>> number(4.956), number(None), number(0.5, sign=True)
    ('4.96', '–', '+0.50')
    """
    if value is None or math.isnan(value):
        return "–"
    return f"{value:+.{digits}f}" if sign else f"{value:.{digits}f}"


def _table_section(name: str, table: pd.DataFrame, rows: Sequence[str]) -> str:
    from densecal.paper.reproduction import EXPERIMENTS

    heading = f"### {EXPERIMENTS[name].title} (`densecal reproduce {name}`)\n\n"
    if "paper" not in table.columns:
        return heading + _plain_table(table)
    digits = 4 if name in ("brier", "nll") else 2
    columns = ["mean", "all"] if name in MEAN_TABLES else list(dict.fromkeys(table["column"]))
    sections = [heading]
    for column in columns:
        part = table[table["column"] == column]
        if part["paper"].notna().any():
            sections.append(f"\n**{_column_title(column)}**\n\n" + _side_by_side(part, rows, digits))
        else:
            sections.append(f"\n**{_column_title(column)}** (ours alone)\n\n" + _ours_alone(part, rows, digits))
    return "".join(sections)


def _column_title(column: str) -> str:
    titles = {"mean": "Mean over all 91 conditions", "all": "Mean over severities 0 to 5"}
    return titles.get(column, column)


def _names(table: pd.DataFrame) -> list[str]:
    return list(dict.fromkeys(table["classifier"]))


def _cells(part: pd.DataFrame) -> dict[tuple[str, str], Any]:
    return {(str(row.classifier), str(row.method)): row for row in part.itertuples()}


def _side_by_side(part: pd.DataFrame, rows: Sequence[str], digits: int) -> str:
    """Paper, ours with its interval, and the difference, for every classifier."""
    cells = _cells(part)
    header = ["method"]
    for row in rows:
        header += [f"{CLASSIFIERS[row].label}: paper", "ours [95 %]", "ours - paper"]
    lines = []
    for method in dict.fromkeys(part["method"]):
        line = [label_of(method)]
        for row in rows:
            cell = cells.get((row, method))
            paper = None if cell is None else cell.paper
            ours = None if cell is None else cell.ours
            gap = None if ours is None or paper is None else ours - paper
            line += [number(paper, digits), _with_interval(cell, digits), number(gap, digits, sign=True)]
        lines.append(line)
    return markdown(header, lines)


def _ours_alone(part: pd.DataFrame, rows: Sequence[str], digits: int) -> str:
    cells = _cells(part)
    lines = [
        [label_of(method), *(_with_interval(cells.get((row, method)), digits) for row in rows)]
        for method in dict.fromkeys(part["method"])
    ]
    return markdown(["method", *(CLASSIFIERS[row].label for row in rows)], lines)


def _with_interval(cell: Any, digits: int) -> str:
    if cell is None:
        return "–"
    ends = "" if math.isnan(cell.low) else f" [{number(cell.low, digits)}, {number(cell.high, digits)}]"
    return f"{number(cell.ours, digits)}{ends}"


def _plain_table(table: pd.DataFrame) -> str:
    write: Callable[[Any], str] = lambda value: f"{value:.4g}" if isinstance(value, float) else str(value)  # noqa: E731
    return markdown(list(table.columns), [[write(value) for value in line] for line in table.itertuples(index=False)])


def _trainings(rows: Sequence[str], folder: str | Path | None) -> str:
    """Say how each classifier was trained, from the facts its training wrote."""
    if folder is None:
        return ""
    lines = []
    for row in rows:
        path = Path(folder) / f"{row}.json"
        if path.exists():
            facts = json.loads(path.read_text(encoding="utf-8"))
            recipe = facts["recipe"]
            lines.append(
                [
                    CLASSIFIERS[row].label,
                    str(facts["epochs"]),
                    f"{recipe['weight_decay']:g}",
                    number(facts["seconds"], 0),
                    number(100 * facts["val_accuracy"]),
                    number(100 * facts["test_accuracy"]),
                ]
            )
    if not lines:
        return ""
    header = ["classifier", "epochs", "weight decay", "seconds", "validation accuracy", "test accuracy"]
    return "## The trainings\n\n" + markdown(header, lines)


def _verdict(protocol: Protocol, rows: Sequence[str]) -> str:
    """Say for each classifier where DAC helps, with paired intervals."""
    header = ["classifier and method", "in-domain", "severity 5", "all", "paper, all", "interval excludes 0"]
    from densecal.paper.published import published_numbers

    paper = published_numbers("ece")
    lines = []
    for row in rows:
        for base in MAIN:
            changes = [dac_helps(protocol, row, base, over)[1] for over in (0, 5, "all")]
            cells = [f"{100 * c.estimate:+.2f} [{100 * c.low:+.2f}, {100 * c.high:+.2f}]" for c in changes]
            after, before = (paper.get((row, method, "mean")) for method in (f"{DAC}+{base}", base))
            gap = None if after is None or before is None else after - before
            said = f"{CLASSIFIERS[row].label}, {label_of(base)}"
            lines.append([said, *cells, number(gap, sign=True), "yes" if changes[-1].excludes_zero else "no"])
    return (
        "What DAC changes of each method's ECE (points; negative is better), with the paired 95 % interval:\n\n"
        + markdown(header, lines)
        + "\n"
        + "\n".join(_summary(protocol, row) for row in rows)
    )


def _summary(protocol: Protocol, row: str) -> str:
    changes = {base: dac_helps(protocol, row, base)[1] for base in MAIN}
    better = [base for base, change in changes.items() if change.estimate < 0]
    surely = [base for base in better if changes[base].excludes_zero]
    worse = [base for base, change in changes.items() if change.estimate >= 0]
    plain = protocol.result(row, UNCALIBRATED, measures=("ece", "accuracy"), out_of_domain=False)
    in_domain = plain.estimate("ece", 0)
    text = (
        f"- **{CLASSIFIERS[row].label}**: accuracy {100 * plain.estimate('accuracy', 0).estimate:.2f} % in-domain and "
        f"{100 * plain.estimate('accuracy', 5).estimate:.2f} % at severity 5; uncalibrated in-domain ECE "
        f"{100 * in_domain.estimate:.2f}. DAC lowers the mean ECE of {len(better)} of {len(changes)} methods, of "
        f"{len(surely)} with an interval that excludes zero."
    )
    if worse:
        text += f" It does not lower that of {', '.join(label_of(base) for base in worse)}: the paper's does."
    return text


def _not_run(rows: Sequence[str]) -> str:
    lines = [
        [classifier.label, classifier.dataset, classifier.weights]
        for name, classifier in CLASSIFIERS.items()
        if classifier.in_paper and name not in rows
    ]
    return NOT_RUN + "\n" + markdown(["classifier", "data", "weights"], lines)
