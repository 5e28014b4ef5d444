"""Plots of the confidence: against the accuracy, of right and wrong predictions, in and out of domain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np

from densecal.arrays import Array, ArrayLike, to_numpy
from densecal.plots.style import INK, RIGHT, SERIES, WRONG, add_grid, add_legend, method_style, open_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from densecal.metrics.calibration_error import Binning, ReliabilityCurve


def reliability_diagram(
    probabilities: ArrayLike,
    labels: ArrayLike | None,
    *,
    n_bins: int = 15,
    binning: Binning = "width",
    band: bool = True,
    histogram: bool = True,
    seed: int = 0,
    ax: Axes | None = None,
) -> Axes:
    """Draw accuracy against confidence, with the diagonal, a bootstrap band and a histogram below.

    Bars below the diagonal show overconfidence, bars above it underconfidence. The mean gap between bar and diagonal,
    weighted by the histogram, is the ECE.

    Parameters
    ----------
    probabilities, labels
        Probabilities (n_samples, n_classes) with labels, or confidence (n_samples,) with booleans (prediction right?).
    n_bins, binning
        As in `densecal.metrics.reliability_curve`.
    band, seed
        Whether to draw the 95 % bootstrap interval of each bin's accuracy, and its seed.
    histogram : bool, default True
        Draw the share of the samples in each bin, in a strip below.

    Examples
    --------
    >>> axes = reliability_diagram(np.array([0.3, 0.9, 0.95]), np.array([False, True, True]), n_bins=5)
    >>> axes.get_ylabel()
    'accuracy'
    """
    from densecal.metrics import expected_calibration_error, reliability_curve

    curve = _in_numpy(reliability_curve(probabilities, labels, n_bins=n_bins, binning=binning))
    error = expected_calibration_error(probabilities, labels, n_bins=n_bins, binning=binning)
    ax = open_axes(ax, width=4.2, height=4.6)
    _draw_bins(ax, curve, accuracy_band(curve, seed=seed) if band else None)
    ax.text(0.03, 0.95, f"ECE {100 * error:.1f} %", transform=ax.transAxes, va="top", color=INK, weight="bold")
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1)
    ax.set_ylabel("accuracy")
    add_grid(ax, "both")
    if histogram:
        _draw_histogram(ax, _in_numpy(reliability_curve(probabilities, labels, n_bins=n_bins)))
    else:
        ax.set_xlabel("confidence")
    return ax


def _in_numpy(curve: ReliabilityCurve) -> ReliabilityCurve:
    return replace(curve, **{name: to_numpy(values) for name, values in vars(curve).items()})


def accuracy_band(curve: ReliabilityCurve, *, n_resamples: int = 1000, seed: int = 0) -> tuple[Array, Array]:
    """Return the ends of the 95 % bootstrap interval of each bin's accuracy; NaN for an empty bin.

    Samples are resampled within their bins, so the number of right predictions is binomial.
    """
    counts: Array = curve.counts
    known = np.where(counts > 0, curve.accuracy, 0.0)
    # Rounding can make an accuracy slightly larger than one.
    hits = np.random.default_rng(seed).binomial(counts, known.clip(0, 1), (n_resamples, len(counts)))
    shares = hits / np.maximum(counts, 1)
    low, high = np.where(counts == 0, np.nan, np.quantile(shares, [0.025, 0.975], axis=0))
    return low, high


def _draw_bins(ax: Axes, curve: ReliabilityCurve, band: tuple[Array, Array] | None) -> None:
    filled = curve.counts > 0
    left, width, accuracy = curve.edges[:-1][filled], np.diff(curve.edges)[filled], curve.accuracy[filled]
    ax.bar(left, accuracy, width, align="edge", color=RIGHT, alpha=0.75, edgecolor="white", linewidth=0.8)
    gap: dict[str, Any] = {"facecolor": WRONG, "alpha": 0.28, "edgecolor": WRONG, "linewidth": 0.6, "hatch": "////"}
    ax.bar(left, -curve.gap[filled], width, bottom=accuracy, align="edge", **gap)
    ax.plot([0, 1], [0, 1], color=INK, linewidth=1.1, linestyle=(0, (4, 3)))
    if band is not None:
        centre = ((curve.edges[:-1] + curve.edges[1:]) / 2)[filled]
        reach = np.clip([accuracy - band[0][filled], band[1][filled] - accuracy], 0, None)
        ax.errorbar(centre, accuracy, reach, fmt="none", ecolor=INK, elinewidth=1.2, capsize=2.5, alpha=0.9)


def _draw_histogram(ax: Axes, curve: ReliabilityCurve) -> None:
    from matplotlib.ticker import MaxNLocator

    strip = open_axes(ax.inset_axes((0, -0.36, 1, 0.22), sharex=ax))
    bars: dict[str, Any] = {"align": "edge", "color": "#8b93a1", "edgecolor": "white", "linewidth": 0.8}
    strip.bar(curve.edges[:-1], curve.mass * 100, np.diff(curve.edges), **bars)
    for name, colour in (("confidence", WRONG), ("accuracy", RIGHT)):
        mean = float(np.nansum(getattr(curve, name) * curve.mass))
        strip.axvline(mean, color=colour, linewidth=1.6, label=f"mean {name}")
    strip.set_ylabel("samples (%)", fontsize="small")
    strip.set_xlabel("confidence")
    strip.yaxis.set_major_locator(MaxNLocator(3))
    strip.legend(frameon=False, fontsize="x-small", loc="upper left", labelcolor=INK)
    ax.tick_params(labelbottom=True)
    # Constrained layout ignores the label of inset axes.
    engine: Any = ax.figure.get_layout_engine()
    if engine is not None and len(ax.figure.axes) == 1:
        engine.set(h_pad=0.12)


def confidence_boxplots(confidences: Mapping[str, Mapping[str, ArrayLike]], *, ax: Axes | None = None) -> Axes:
    """Draw box plots of the top-1 confidence, one group per method and one box per data set.

    Parameters
    ----------
    confidences : mapping of method to mapping of data set to array
        For example ``{"ts": {"in-domain": ..., "OOD": ...}, "dac+ts": {...}}``.

    Examples
    --------
    >>> axes = confidence_boxplots({"ts": {"in-domain": np.array([0.9, 1.0]), "OOD": np.array([0.4, 0.6])}})
    >>> [label.get_text() for label in axes.get_xticklabels()]
    ['TS']
    """
    if not confidences:
        raise ValueError("confidences must have at least one method, got none.")
    ax = open_axes(ax, width=1.6 + 1.1 * len(confidences))
    names = list(next(iter(confidences.values())))
    step = 0.7 / len(names)
    for place, (name, colour) in enumerate(zip(names, cycle(SERIES), strict=False)):
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
    ax.set_ylabel("confidence")
    add_grid(ax)
    add_legend(ax, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(names))
    return ax


def confidence_histogram(
    confidence: ArrayLike, correct: ArrayLike, *, n_bins: int = 20, ax: Axes | None = None
) -> Axes:
    """Draw the confidences of right (upwards) and wrong predictions (downwards).

    Parameters
    ----------
    confidence, correct : arrays of shape (n_samples,)
        The top-1 confidence, and whether each prediction is right.
    n_bins : int, default 20
        Number of bars over [0, 1].

    Examples
    --------
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
