"""Distributions of confidence: right and wrong predictions, in-domain and out-of-domain data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from densecal.arrays import Array, ArrayLike, to_numpy
from densecal.plots.style import INK, RIGHT, SERIES, WRONG, add_grid, add_legend, method_style, open_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def confidence_boxplots(
    confidences: Mapping[str, Mapping[str, ArrayLike]], *, ax: Axes | None = None, ylabel: str = "confidence"
) -> Axes:
    """Draw box plots of the top-1 confidence, one group per method and one box per data set.

    Parameters
    ----------
    confidences : mapping of method to mapping of data set to array
        For example ``{"ts": {"in-domain": ..., "OOD": ...}, "dac+ts": {...}}``.
    ax : matplotlib axes, optional
        Axes to draw into; by default those of a new figure.
    ylabel : str
        Label of the y axis.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("agg")
    >>> axes = confidence_boxplots({"ts": {"in-domain": np.array([0.9, 1.0]), "OOD": np.array([0.4, 0.6])}})
    >>> [label.get_text() for label in axes.get_xticklabels()]
    ['TS']
    """
    if not confidences:
        raise ValueError("confidences must have at least one method, got none.")
    ax = open_axes(ax, width=1.6 + 1.1 * len(confidences))
    names = list(next(iter(confidences.values())))
    step = 0.7 / len(names)
    for place, (name, colour) in enumerate(zip(names, SERIES, strict=False)):
        boxes = ax.boxplot(
            [to_numpy(groups[name]) for groups in confidences.values()],
            positions=np.arange(len(confidences)) + (place - (len(names) - 1) / 2) * step,
            widths=step * 0.8,
            patch_artist=True,
            showfliers=False,
            medianprops={"color": INK, "linewidth": 1.6},
            boxprops={"facecolor": colour, "alpha": 0.55, "edgecolor": colour},
            whiskerprops={"color": colour},
            capprops={"color": colour},
        )
        boxes["boxes"][0].set_label(name)
    ax.set_xticks(range(len(confidences)), [method_style(method).label for method in confidences], fontsize="small")
    ax.tick_params(axis="x", length=0)
    ax.set_ylim(0, 1.02)
    ax.set_ylabel(ylabel)
    add_grid(ax)
    add_legend(ax, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(names))
    return ax


def confidence_histogram(
    confidence: ArrayLike, correct: ArrayLike, *, n_bins: int = 20, ax: Axes | None = None
) -> Axes:
    """Draw the confidences of right (upwards) and wrong predictions (downwards).

    Parameters
    ----------
    confidence : array of shape (n_samples,)
        The top-1 confidence.
    correct : array of shape (n_samples,)
        Whether each prediction is right.
    n_bins : int, default 20
        Number of bars over [0, 1].
    ax : matplotlib axes, optional
        Axes to draw into; by default those of a new figure.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("agg")
    >>> axes = confidence_histogram(np.array([0.9, 0.6]), np.array([True, False]), n_bins=4)
    >>> len(axes.patches)
    8
    """
    ax = open_axes(ax)
    edges, right, wrong = right_and_wrong(to_numpy(confidence), to_numpy(correct).astype(bool), n_bins)
    for share, colour, label in ((right, RIGHT, "right"), (-wrong, WRONG, "wrong")):
        ax.bar(edges[:-1], share * 100, np.diff(edges) * 0.92, align="edge", color=colour, alpha=0.85, label=label)
    ax.axhline(0, color=INK, linewidth=0.8)
    ax.yaxis.set_major_formatter(lambda value, _: f"{abs(value):g}")
    ax.set_xlim(0, 1)
    ax.set_xlabel("confidence")
    ax.set_ylabel("share of the samples (%)")
    add_grid(ax)
    add_legend(ax, loc="upper left")
    return ax


def right_and_wrong(confidence: Array, correct: Array, n_bins: int = 20) -> tuple[Array, Array, Array]:
    """Return the bin edges over [0, 1] and the share of all samples in each bin with right and wrong predictions."""
    edges = np.linspace(0, 1, n_bins + 1)
    right, wrong = (np.histogram(confidence[rows], edges)[0] / len(correct) for rows in (correct, ~correct))
    return edges, right, wrong
