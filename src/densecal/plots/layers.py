"""Plots of what DAC learned: the weight of each layer, and the temperature against the distance."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np

from densecal.arrays import Array, to_numpy
from densecal.plots.style import (
    FAINT,
    INK,
    RIGHT,
    SERIES,
    SEVERITY_LIGHT,
    add_grid,
    add_legend,
    open_axes,
    severity_index,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MAX_POINTS = 2000
LARGEST_BLOB = 900.0


def layer_importance(
    importance: Mapping[str, float] | Mapping[str, Mapping[str, float]], *, ax: Axes | None = None
) -> Axes:
    """Draw one circle per layer, from the input (left) to the logits (right); its area is the layer's share.

    Parameters
    ----------
    importance : mapping of layer to share, or mapping of classifier to such a mapping
        For example ``DAC.layer_importance_``. Each classifier is one row.

    Examples
    --------
    >>> axes = layer_importance({"layer1": 0.7, "logits": 0.3})
    >>> [label.get_text() for label in axes.get_xticklabels()]
    ['layer1', 'logits']
    """
    if not importance:
        raise ValueError("importance must have at least one layer; this DAC was fitted without layers.")
    rows: dict[str, Any] = {name: shares for name, shares in importance.items() if isinstance(shares, Mapping)}
    rows = rows or {"": importance}
    widest = max(len(shares) for shares in rows.values())
    ax = open_axes(ax, width=max(4.0, 0.9 * widest + 1.2), height=1.3 + 0.7 * len(rows))
    for height, shares in enumerate(list(rows.values())[::-1]):
        values = np.array(list(shares.values()), dtype=float)
        # The axis shows the layer names of a single classifier; several classifiers share it from input to logits.
        places = np.arange(len(values)) if len(rows) == 1 else np.linspace(0, 1, len(values))
        heights = np.full(len(values), height)
        ax.plot(places, heights, color=FAINT, linewidth=1.2, zorder=1)
        ax.scatter(places, heights, s=10, color=FAINT, zorder=2)
        ax.scatter(places, heights, s=LARGEST_BLOB * values, color=RIGHT, alpha=0.8, zorder=3)
        if len(rows) == 1:
            above: dict[str, Any] = {"textcoords": "offset points", "ha": "center", "color": INK, "fontsize": "small"}
            for place, value in zip(places, values, strict=True):
                ax.annotate(f"{value:.0%}", (place, height), (0, 24), **above)
    _label_layers(ax, rows)
    return ax


def _label_layers(ax: Axes, rows: dict[str, Any]) -> None:
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
        ax.set_yticks(range(len(rows)), list(rows)[::-1])


def layer_weights(weights: Mapping[str, Mapping[str, float]], *, ax: Axes | None = None) -> Axes:
    """Draw DAC's weights along the depth of the classifier, one line per choice of layers, each summing to one.

    Parameters
    ----------
    weights : mapping of choice to mapping of layer to weight
        For example ``{"selected layers": {...}, "all layers": {...}}``, with the layers from input to output. Layers
        that are also in the longest choice are drawn at the same position.

    Examples
    --------
    >>> axes = layer_weights({"all layers": {"a": 1, "b": 2, "c": 1}, "selected layers": {"a": 3, "c": 1}})
    >>> [float(y) for y in axes.lines[1].get_ydata()]
    [0.75, 0.25]
    """
    ax = open_axes(ax, width=6.0)
    longest = max((list(shares) for shares in weights.values()), key=len)
    depth = {layer: place / max(1, len(longest) - 1) for place, layer in enumerate(longest)}
    for (choice, shares), colour, marker in zip(weights.items(), cycle(SERIES), cycle("os^D"), strict=False):
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
) -> Axes:
    """Draw the temperature S(x) of each sample against its distance from the training data.

    Parameters
    ----------
    distances, temperatures : array of shape (n_samples,), or mappings of condition to such an array
        The distance of each sample (in one layer, or a mean over layers) and its temperature from DAC. With
        mappings, each condition has its own colour, from the first (clean) to the last (strongest shift).

    Examples
    --------
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
    count = len(by_condition)
    for place, (condition, values) in enumerate(by_condition.items()):
        x, y = to_numpy(values), to_numpy(temperature_of[condition])
        if x.shape != y.shape or x.ndim != 1:
            raise ValueError(f"distances and temperatures must have shape (n_samples,), got {x.shape} and {y.shape}.")
        rows = thinned(len(x), MAX_POINTS // count)
        colour = SEVERITY_LIGHT[severity_index(place, count)]
        ax.scatter(x[rows], y[rows], s=9, color=colour, alpha=0.55, linewidths=0, label=condition or None)
    ax.axhline(1, color=FAINT, linewidth=1, zorder=0)
    ax.set_xlabel("distance to the training data")
    ax.set_ylabel("temperature S(x)")
    add_grid(ax)
    add_legend(ax, markerscale=1.8)
    return ax


def thinned(available: int, most: int) -> Array:
    """Return at most ``most`` evenly spaced row indices, to limit the size of a figure."""
    return np.linspace(0, available - 1, min(available, most)).astype(int)
