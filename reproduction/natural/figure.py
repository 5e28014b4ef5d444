"""One picture of all studies: the ECE of temperature scaling and of the default on every source and target."""

from __future__ import annotations

import pandas as pd
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from densecal.calibrators.names import ORACLE
from densecal.plots.style import FAINT, INK, RIGHT, WRONG, method_style
from reproduction.natural.judge import DEFAULT

ROW = 0.17
"""Height of a pair in inches."""


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
