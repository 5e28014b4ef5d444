"""Pictures of all studies: the ECE of every pair of source and target, and what is claimed against the truth."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from densecal.calibrators import ORACLE
from densecal.plots.style import FAINT, INK, RIGHT, WRONG, method_style
from reproduction.natural.cases import STUDIES
from reproduction.natural.judge import ADAPTED, DEFAULT

ROW = 0.17
"""Height of a pair in inches."""
MANY_CASES = 60
"""From here on points are small, and pixels in an SVG."""
COLUMNS = 3


def picture(pairs: pd.DataFrame) -> Figure:
    """Draw a line per pair from TS to the default: blue where the default is better, orange where it is worse.

    ``pairs`` is the table of `reproduction.natural.page.by_pair`. Pale lines are differences that are not significant.
    """
    studies = list(dict.fromkeys(pairs["study"]))
    sizes = [int((pairs["study"] == study).sum()) for study in studies]
    figure = Figure(figsize=(7.5, ROW * sum(sizes) + 0.45 * len(studies) + 0.8), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(studies), 1, sharex=True, squeeze=False, height_ratios=[size + 1.5 for size in sizes])
    for ax, study in zip(axes[:, 0], studies, strict=True):
        rows = pairs[pairs["study"] == study].sort_values("ts", ascending=False)
        for place, row in enumerate(rows.to_dict("records")):
            colour = RIGHT if row[DEFAULT] < row["ts"] else WRONG
            clear = row["worse"] or row["better"]
            ends = [100 * row["ts"], 100 * row[DEFAULT]]
            ax.plot(ends, [place, place], color=colour, linewidth=2, alpha=1.0 if clear else 0.35)
            ax.plot(ends[0], place, marker="o", color="white", markeredgecolor=colour, markersize=5)
            ax.plot(ends[1], place, marker="o", color=colour, markersize=5, alpha=1.0 if clear else 0.5)
            ax.plot(100 * row[ORACLE], place, marker="|", color=method_style(ORACLE).colour, markersize=7)
        names = [f"{source} → {target}" for source, target in zip(rows["source"], rows["target"], strict=True)]
        ax.set_yticks(range(len(rows)), names, fontsize=6, color=INK)
        ax.set_ylim(len(rows) - 0.4, -0.6)
        ax.set_title(study, loc="left", fontsize=8, color=INK)
        ax.grid(axis="x", color=FAINT, linewidth=0.6)
        ax.set_axisbelow(True)
        for side in ("top", "right", "left"):
            ax.spines[side].set_visible(False)
    axes[-1, 0].set_xlabel("ECE x100 — open: temperature scaling, filled: default, bar: oracle")
    axes[-1, 0].set_xlim(left=0)
    return figure


def claims(cases: pd.DataFrame) -> Figure:
    """Draw what TS and densecal claim against the accuracy, a panel per study; the truth is the diagonal.

    ``cases`` is the table of `reproduction.natural.cases.shifted_cases`. A line joins the claims of TS (open) and of
    the default (filled) on one case: blue where the default's ECE is lower, orange where it is higher, pale where the
    difference is not significant. Crosses are the claims after adaptation.
    """
    n_rows = len(STUDIES) // COLUMNS + 1  # the last row has room for the legend
    figure = Figure(figsize=(3.0 * COLUMNS, 3.2 * n_rows), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(n_rows, COLUMNS).flat
    for ax in axes[len(STUDIES) :]:
        ax.remove()
    place = (1.2 / COLUMNS, 0.5 / n_rows)
    figure.legend(handles=_legend(), loc="center left", bbox_to_anchor=place, frameon=False, fontsize=8)
    for ax, (study, title) in zip(axes, STUDIES.items(), strict=False):
        own = cases[cases["study"] == study]
        many = len(own) >= MANY_CASES
        size = 2.2 if many else 4.5
        ax.plot([0, 100], [0, 100], color=INK, linewidth=1)
        better = own[f"ece {DEFAULT}"] < own["ece ts"]
        clear = own[f"better {DEFAULT}"] | own[f"worse {DEFAULT}"] | ~own["judged"]
        for (won, sure), part in own.groupby([better, clear]):
            looks = {"color": RIGHT if won else WRONG, "alpha": 0.9 if sure else 0.35, "rasterized": many}
            accuracy, said, ours = (100 * part[name] for name in ("accuracy", "claim ts", f"claim {DEFAULT}"))
            ax.vlines(accuracy, said, ours, linewidth=size / 3.5, **looks)
            ax.plot(accuracy, said, "o", markersize=size, markerfacecolor="white", markeredgewidth=0.8, **looks)
            ax.plot(accuracy, ours, "o", markersize=size, markeredgewidth=0, **looks)
        adapted = 100 * own[f"claim {ADAPTED}"]
        ax.plot(100 * own["accuracy"], adapted, "x", color=INK, markersize=size, alpha=0.7, rasterized=many)
        ax.set_title(f"{title} ({len(own)})", loc="left", fontsize=8, color=INK)
        ax.grid(color=FAINT, linewidth=0.6)
        limits = _limits(100 * own[["accuracy", "claim ts", f"claim {DEFAULT}", f"claim {ADAPTED}"]].to_numpy())
        ax.set(xlim=limits, ylim=limits, aspect="equal")
        ax.tick_params(labelsize=7, color=INK, labelcolor=INK)
        for side in ("top", "right"):
            ax.spines[side].set_visible(False)
    figure.supxlabel("true accuracy, %", fontsize=9, color=INK)
    figure.supylabel("claimed: mean confidence, %", fontsize=9, color=INK)
    return figure


def _limits(shown: Any) -> tuple[float, float]:
    """Return limits in tens for both axes, at least 30 points apart."""
    low, high = 10 * np.floor((shown.min() - 1) / 10), min(100.0, 10 * np.ceil((shown.max() + 1) / 10))
    low = max(0.0, min(low, high - 30))
    return low, max(high, low + 30)


def _legend() -> list[Line2D]:
    looks: dict[str, dict[str, Any]] = {
        "temperature scaling's claim": {"color": INK, "marker": "o", "linestyle": "", "markerfacecolor": "white"},
        "densecal's claim, ECE lower than TS": {"color": RIGHT, "marker": "o"},
        "densecal's claim, ECE higher than TS": {"color": WRONG, "marker": "o"},
        "densecal, adapted to the unlabelled inputs": {"color": INK, "marker": "x", "linestyle": ""},
        "the truth": {"color": INK, "linewidth": 1},
        "pale: not significant": {"color": RIGHT, "marker": "o", "alpha": 0.35},
    }
    return [Line2D([], [], label=label, **look) for label, look in looks.items()]
