"""Tables of the reproduction page, in Markdown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pandas as pd

from reproduction.classifiers import CLASSIFIERS
from reproduction.methods import label_of
from reproduction.page.markdown import markdown


def frame_table(frame: pd.DataFrame, form: str) -> str:
    """Return a data frame of numbers as a Markdown table, its index as the first column."""
    lines = [[str(name), *(format(value, form) for value in values)] for name, *values in frame.itertuples()]
    return markdown([str(frame.index.name), *map(str, frame.columns)], lines)


def number(value: float | None, digits: int = 2, *, sign: bool = False) -> str:
    """Format a number, or return a dash if it is missing."""
    if value is None or math.isnan(value):
        return "–"
    return f"{value:+.{digits}f}" if sign else f"{value:.{digits}f}"


def interval(value: float, low: float, high: float, digits: int = 2, *, sign: bool = False) -> str:
    """Format a value and its interval, if it has one."""
    shown, *ends = (number(each, digits, sign=sign) for each in (value, low, high))
    return shown if math.isnan(low) else f"{shown} [{', '.join(ends)}]"


def with_interval(cell: Any, digits: int, *, sign: bool = False) -> str:
    """Format a row's value and its interval, or return a dash if it is missing."""
    return "–" if cell is None else interval(cell.ours, cell.low, cell.high, digits, sign=sign)


def side_by_side(part: pd.DataFrame, rows: Sequence[str], digits: int) -> str:
    """Return a table of the paper's value, ours with its interval, and the difference, for every classifier."""
    cells = _cells(part)
    header = ["method"]
    for row in rows:
        header += [f"{CLASSIFIERS[row].label}: paper", "ours [95 %]", "ours - paper"]
    lines = []
    for method in dict.fromkeys(part["method"]):
        line = [label_of(method)]
        for row in rows:
            cell = cells.get((row, method))
            paper, gap = (None, None) if cell is None else (cell.paper, cell.ours - cell.paper)
            line += [number(paper, digits), with_interval(cell, digits), number(gap, digits, sign=True)]
        lines.append(line)
    return markdown(header, lines)


def ours_alone(part: pd.DataFrame, rows: Sequence[str], digits: int) -> str:
    """Return a table of values that are not in the paper: one row per method, one column per classifier."""
    cells = _cells(part)
    lines = [
        [label_of(method), *(with_interval(cells.get((row, method)), digits) for row in rows)]
        for method in dict.fromkeys(part["method"])
    ]
    return markdown(["method", *(CLASSIFIERS[row].label for row in rows)], lines)


def _cells(part: pd.DataFrame) -> dict[tuple[str, str], Any]:
    return {(str(row.classifier), str(row.method)): row for row in part.itertuples()}


def plain_table(table: pd.DataFrame) -> str:
    """Return a table that is not in the paper; value, low and high become one cell in points."""
    order = ["classifier", *(name for name in table.columns if name != "classifier")]
    shown = table[[name for name in order if name in table.columns]].copy()
    if "classifier" in shown:
        shown["classifier"] = [CLASSIFIERS[name].label for name in shown["classifier"]]
    if "method" in shown:
        shown["method"] = [label_of(name) for name in shown["method"]]
    if {"value", "low", "high"} <= set(shown.columns):
        shown = _across(shown)
    return markdown(list(shown.columns), [[_cell(value) for value in line] for line in shown.itertuples(index=False)])


def _across(table: pd.DataFrame) -> pd.DataFrame:
    """Pivot the table: one column per value of k or choice of layers."""
    (across,) = (name for name in table.columns if name not in ("classifier", "method", "value", "low", "high"))
    cells = [interval(*ends) for ends in 100 * table[["value", "low", "high"]].to_numpy(float)]
    heads = [_head(across, each) for each in table[across]]
    methods = [method.removesuffix(" + DAC") for method in table["method"]]
    wide = table.assign(cell=cells, head=heads, method=methods)
    wide = wide.pivot(index=["classifier", "method"], columns="head", values="cell")
    places = list(dict.fromkeys(zip(table["classifier"], methods, strict=True)))
    return wide.loc[places][list(dict.fromkeys(heads))].reset_index().fillna("–")


def _head(across: str, value: Any) -> str:
    if across != "k":
        return str(value)
    return "without DAC" if math.isnan(value) else f"k = {value:g}"


def _cell(value: Any) -> str:
    if not isinstance(value, float):
        return str(value)
    if math.isnan(value):
        return "–"
    return "0" if abs(value) < 1e-9 else f"{value:.4g}"
