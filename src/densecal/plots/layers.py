"""What DAC learned: which layers it listens to, and how temperature grows with distance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from densecal.arrays import Array, to_numpy
from densecal.plots.canvas import FAINT, INK, RIGHT, add_grid, add_legend, open_axes
from densecal.plots.style import SEVERITY_LIGHT

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_POINTS = 2000
LARGEST_BLOB = 900.0


def layer_importance(
    importance: Mapping[str, float] | Mapping[str, Mapping[str, float]], *, ax: Axes | None = None
) -> Axes:
    """Draw a blob a layer, from the input (left) to the logits (right); its area is the layer's share.

    Parameters
    ----------
    importance : mapping of layer to share, or mapping of classifier to such a mapping
        As ``DAC.layer_importance_`` gives it; several classifiers make several rows.
    ax : matplotlib axes, optional
        Where to draw; without it a new figure is made.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("agg")
    >>> axes = layer_importance({"layer1": 0.7, "logits": 0.3})
    >>> [label.get_text() for label in axes.get_xticklabels()]
    ['layer1', 'logits']
    """
    rows = _rows_of_layers(importance)
    widest = max(len(shares) for shares in rows.values())
    ax = open_axes(ax, width=max(4.0, 0.9 * widest + 1.2), height=1.3 + 0.7 * len(rows))
    for height, shares in enumerate(reversed(rows.values())):
        values = np.array(list(shares.values()), dtype=float)
        # One classifier has its layers' names below it; several share an axis from input to logits.
        places = np.arange(len(values)) if len(rows) == 1 else np.linspace(0, 1, len(values))
        ax.plot(places, np.full(len(values), height), color=FAINT, linewidth=1.2, zorder=1)
        ax.scatter(places, np.full(len(values), height), s=10, color=FAINT, zorder=2)
        ax.scatter(places, np.full(len(values), height), s=LARGEST_BLOB * values, color=RIGHT, alpha=0.8, zorder=3)
        if len(rows) == 1:
            for place, value in zip(places, values, strict=True):
                ax.annotate(
                    f"{value:.0%}", (place, height), (0, 24), textcoords="offset points", ha="center", color=INK,
                    fontsize="small",
                )  # fmt: skip
    _label_layers(ax, rows)
    return ax


def _label_layers(ax: Axes, rows: dict[str, Mapping[str, float]]) -> None:
    ax.set_ylim(-0.7, len(rows) - 0.3)
    ax.spines[["left", "bottom"]].set_visible(False)
    ax.tick_params(length=0)
    if len(rows) == 1:
        names = list(next(iter(rows.values())))
        tilt: dict[str, Any] = {"rotation": 35, "ha": "right"} if max(map(len, names)) * len(names) > 60 else {}
        ax.set_xticks(range(len(names)), names, fontsize="small", **tilt)
        ax.margins(x=0.12)
        ax.set_yticks([])
    else:
        ax.set_xticks([0, 1], ["input", "logits"])
        ax.margins(x=0.08)
        ax.set_yticks(range(len(rows)), list(reversed(rows)))


def _rows_of_layers(importance: Mapping[str, Any]) -> dict[str, Mapping[str, float]]:
    if not importance:
        raise ValueError("importance holds no layer: this DAC was fitted without layers.")
    if all(isinstance(shares, Mapping) for shares in importance.values()):
        return dict(importance)
    return {"": importance}


def layer_weights(
    weights: Mapping[str, Mapping[str, float]], *, ax: Axes | None = None
) -> Axes:  # fmt: skip
    """Draw DAC's weights along the depth of the classifier, one line a choice of layers, each summing to one.

    Parameters
    ----------
    weights : mapping of choice to mapping of layer to weight
        For example ``{"selected layers": {...}, "all layers": {...}}``; the layers are in their running order.
        A choice whose layers are a part of the longest choice's is drawn at the same places.
    ax : matplotlib axes, optional
        Where to draw; without it a new figure is made.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("agg")
    >>> axes = layer_weights({"all layers": {"a": 1, "b": 2, "c": 1}, "selected layers": {"a": 3, "c": 1}})
    >>> [float(y) for y in axes.lines[1].get_ydata()]
    [0.75, 0.25]
    """
    ax = open_axes(ax, width=6.0)
    longest = max((list(shares) for shares in weights.values()), key=len)
    depth = {layer: place / max(1, len(longest) - 1) for place, layer in enumerate(longest)}
    for (choice, shares), colour, marker in zip(
        weights.items(), ("#0072b2", "#c2570c", "#00855f"), "os^", strict=False
    ):
        values = np.array(list(shares.values()), dtype=float)
        evenly = np.linspace(0, 1, len(values))
        places = [depth.get(layer, even) for layer, even in zip(shares, evenly, strict=True)]
        total = values.sum() or 1.0
        ax.plot(places, values / total, color=colour, marker=marker, markersize=4, linewidth=1.5, label=choice)
    ax.set_xticks([0, 1], ["input", "logits"])
    ax.set_ylabel("share of the weight")
    ax.set_ylim(bottom=0)
    add_grid(ax)
    add_legend(ax)
    return ax


def temperature_against_distance(
    distances: Array | Mapping[str, Array],
    temperatures: Array | Mapping[str, Array],
    *,
    ax: Axes | None = None,
    label: str = "distance to the training data",
) -> Axes:
    """Draw each sample's temperature S(x) against its distance from the training data.

    Parameters
    ----------
    distances, temperatures : array of shape (samples,), or mappings of condition to such an array
        One distance a sample (a layer's, or a mean over layers) and the temperature DAC gave it. Mappings give each
        condition its colour, from the first (clean) to the last (strongest shift).
    ax : matplotlib axes, optional
        Where to draw; without it a new figure is made.
    label : str
        The x axis's label.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("agg")
    >>> axes = temperature_against_distance(np.array([0.1, 0.4]), np.array([1.0, 1.6]))
    >>> axes.get_ylabel()
    'temperature S(x)'
    """
    by_condition = distances if isinstance(distances, Mapping) else {"": distances}
    temperature_of = temperatures if isinstance(temperatures, Mapping) else {"": temperatures}
    if set(by_condition) != set(temperature_of):
        raise ValueError(
            f"distances and temperatures must have the same conditions, got {sorted(by_condition)} and "
            f"{sorted(temperature_of)}."
        )
    ax = open_axes(ax)
    places = np.linspace(0, len(SEVERITY_LIGHT) - 1, len(by_condition)).round().astype(int)
    for (condition, values), place in zip(by_condition.items(), places, strict=True):
        x, y = _thin(to_numpy(values), to_numpy(temperature_of[condition]), MAX_POINTS // len(by_condition))
        ax.scatter(x, y, s=9, color=SEVERITY_LIGHT[place], alpha=0.55, linewidths=0, label=condition or None)
    ax.axhline(1, color=FAINT, linewidth=1, zorder=0)
    ax.set_xlabel(label)
    ax.set_ylabel("temperature S(x)")
    add_grid(ax)
    add_legend(ax, markerscale=1.8)
    return ax


def _thin(x: Any, y: Any, most: int) -> tuple[Any, Any]:
    if x.shape != y.shape or x.ndim != 1:
        raise ValueError(f"distances and temperatures must be one number a sample each, got {x.shape} and {y.shape}.")
    rows = np.linspace(0, len(x) - 1, min(len(x), most)).astype(int)
    return x[rows], y[rows]
