"""Axes with densecal's look, set on the axes themselves: matplotlib's global settings are not touched."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from densecal.plots.style import FAINT, INK

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def open_axes(ax: Axes | None, width: float = 5.0, height: float = 3.6) -> Axes:
    """Return the given axes, or those of a new figure, with quiet spines and ticks."""
    if ax is None:
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
