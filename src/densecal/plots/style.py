"""Styles of methods and severities, shared by plots and reports, and of matplotlib axes.

Styles are set on the axes themselves, not in matplotlib's global settings. Most colours are from the colour-blind safe
palette of Okabe and Ito, a few from Paul Tol's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from densecal.calibrators import ORACLE, UNCALIBRATED
from densecal.calibrators.registry import base_method, has_dac, is_shift_fitted, method_label
from densecal.errors import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, FAINT = "#374151", "#d8dce2"
RIGHT, WRONG = "#0072b2", "#c2570c"
SERIES = (RIGHT, WRONG, "#00855f", "#a8508a")
"""Colours of series that are not methods."""

SEVERITY_LIGHT = ("#2b6cb0", "#3f8fa8", "#7a9a4a", "#c79a2e", "#cf6f2b", "#a83232")
SEVERITY_DARK = ("#6cb2f0", "#6fc3d4", "#a9cf74", "#e8c35c", "#f09a5c", "#ee7777")
"""From clean (blue) to the strongest shift (red), on white and on black."""

# base method -> (colour on white, colour on black, matplotlib marker)
_LOOKS = {
    UNCALIBRATED: ("#6b7280", "#9ca3af", "o"),
    "ts": ("#0072b2", "#5ab4e6", "s"),
    "ets": ("#c2570c", "#f0a35e", "^"),
    "spl": ("#00855f", "#3fc79a", "D"),
    "irm": ("#a8508a", "#e39ac7", "v"),
    "dia": ("#2f7fb5", "#8ccbf2", "P"),
    "ir": ("#8a6d00", "#e0c341", "X"),
    "pts": ("#4b3fa8", "#a79df2", "<"),
    "dir": ("#8b2c3c", "#e58a98", ">"),
    "vs": ("#3d6b21", "#a3cf7f", "h"),
    "platt": ("#0f766e", "#5fd0c5", "p"),
    "beta": ("#9a3412", "#f0a98a", "d"),
    ORACLE: ("#9aa1ab", "#6f7783", "*"),
}
_SHIFT_FITTED_COLOURS = ("#7b2d8b", "#d9a1e6")
_OTHERS = (("#332288", "#a89df0", "p"), ("#7a5a00", "#d9b84a", "d"), ("#882255", "#e58ab4", "H"))


@dataclass(frozen=True)
class MethodStyle:
    """Style of a method; ``line`` is solid with DAC, dashed without it, dotted for the two reference curves."""

    label: str
    colour: str
    dark_colour: str
    marker: str
    line: str
    with_dac: bool


def method_style(method: str, kind: str | None = None) -> MethodStyle:
    """Return the style of a method; ``kind`` is the method of a calibrator with its own name, such as ``dac+ets``."""
    base, with_dac = base_method(method), has_dac(method if kind is None else kind)
    # An unknown name has the same style in every figure and every run.
    colour, dark_colour, marker = _LOOKS.get(base) or _OTHERS[sum(base.encode()) % len(_OTHERS)]
    if is_shift_fitted(method):
        colour, dark_colour = _SHIFT_FITTED_COLOURS
    line = "solid" if with_dac else "dotted" if method in (UNCALIBRATED, ORACLE) else "dashed"
    return MethodStyle(method_label(method), colour, dark_colour, marker, line, with_dac)


def severity_index(place: int, count: int) -> int:
    """Return the index of the severity colour for the n-th of ``count`` severities."""
    return round(place * (len(SEVERITY_LIGHT) - 1) / max(1, count - 1))


def open_axes(ax: Axes | None, width: float = 5.0, height: float = 3.6) -> Axes:
    """Return the given axes, or those of a new figure, with light spines and ticks."""
    if ax is None:
        require("matplotlib", "plots", "densecal.plots")
        import matplotlib.pyplot as plt

        _, ax = plt.subplots(figsize=(width, height), layout="constrained")
    ax.spines[["top", "right"]].set_visible(False)
    ax.spines[["left", "bottom"]].set_color(FAINT)
    ax.tick_params(colors=INK, length=3, width=0.8)
    ax.xaxis.label.set_color(INK)
    ax.yaxis.label.set_color(INK)
    ax.set_axisbelow(True)
    return ax


def add_grid(ax: Axes, axis: Literal["both", "x", "y"] = "y") -> None:
    """Draw faint grid lines behind the data."""
    ax.grid(True, axis=axis, color=FAINT, linewidth=0.7)


def add_legend(ax: Axes, **options: Any) -> None:
    """Add a legend without a frame, unless nothing has a label."""
    if ax.get_legend_handles_labels()[0]:
        ax.legend(frameon=False, labelcolor=INK, fontsize="small", **options)
