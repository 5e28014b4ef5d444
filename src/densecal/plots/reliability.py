"""The reliability diagram: whether 80 % confidence means 80 % right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from densecal.arrays import to_numpy
from densecal.plots.canvas import FAINT, INK, RIGHT, WRONG, add_grid, open_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from densecal.metrics.binning import ReliabilityCurve

Binning = Literal["width", "mass"]


def accuracy_band(
    curve: ReliabilityCurve, *, level: float = 0.95, resamples: int = 1000, seed: int = 0
) -> tuple[Any, Any]:
    """Return the bootstrap interval of each bin's accuracy.

    Samples are redrawn within their bins, so a bin of n samples has a binomial number of right ones.

    Parameters
    ----------
    curve : ReliabilityCurve
        The bins, from `densecal.metrics.reliability_curve`.
    level : float, default 0.95
        How much of the resamples the band covers.
    resamples, seed : int
        The number of resamples, and the seed that makes them the same in every run.

    Returns
    -------
    low, high : arrays of shape (bins,)
        NaN for an empty bin.

    Examples
    --------
    >>> from densecal.metrics import reliability_curve
    >>> curve = reliability_curve([0.9] * 100, [True] * 80 + [False] * 20, n_bins=1)
    >>> low, high = accuracy_band(curve)
    >>> bool(low[0] < 0.8 < high[0])
    True
    """
    counts = to_numpy(curve.counts).astype(int)
    accuracy = to_numpy(curve.accuracy)
    known = np.where(counts > 0, accuracy, 0.0)
    # Rounding may leave a share of correct answers a hair above one.
    hits = np.random.default_rng(seed).binomial(counts, known.clip(0, 1), (resamples, len(counts)))
    shares = hits / np.maximum(counts, 1)
    tail = (1 - level) / 2
    low, high = np.quantile(shares, [tail, 1 - tail], axis=0)
    empty = counts == 0
    return np.where(empty, np.nan, low), np.where(empty, np.nan, high)


def reliability_diagram(
    probabilities: object,
    labels: object,
    *,
    n_bins: int = 15,
    binning: Binning = "width",
    band: bool = True,
    histogram: bool = True,
    seed: int = 0,
    ax: Axes | None = None,
) -> Axes:
    """Draw accuracy against confidence, the perfect diagonal, a bootstrap band and the histogram below.

    Bars below the diagonal mean over-confidence, bars above it under-confidence; the gap between bar and diagonal,
    weighted by the histogram, is the ECE.

    Parameters
    ----------
    probabilities, labels
        (N, C) probabilities with labels, or (N,) top-1 confidence with N booleans (was it right?).
    n_bins, binning
        As in `densecal.metrics.reliability_curve`.
    band : bool, default True
        Draw the 95 % bootstrap interval of each bin's accuracy.
    histogram : bool, default True
        Draw how many samples each bin holds, in a strip below.
    seed : int, default 0
        Seed of the bootstrap.
    ax : matplotlib axes, optional
        Where to draw; without it a new figure is made. The strip takes its room from these axes.

    Examples
    --------
    >>> import matplotlib; matplotlib.use("agg")
    >>> axes = reliability_diagram(np.array([0.3, 0.9, 0.95]), np.array([False, True, True]), n_bins=5)
    >>> axes.get_ylabel()
    'accuracy'
    """
    from densecal.metrics import expected_calibration_error, reliability_curve

    curve = reliability_curve(probabilities, labels, n_bins=n_bins, binning=binning)
    error = expected_calibration_error(probabilities, labels, n_bins=n_bins, binning=binning)
    ax = open_axes(ax, width=4.2, height=4.6)
    _draw_bars(ax, curve)
    if band:
        _draw_band(ax, curve, *accuracy_band(curve, seed=seed))
    ax.text(0.03, 0.95, f"ECE {100 * error:.1f} %", transform=ax.transAxes, va="top", color=INK, weight="bold")
    ax.set_xlim(0, 1)
    ax.set_ylim(0, 1)
    ax.set_ylabel("accuracy")
    add_grid(ax, "both")
    if histogram:
        _draw_histogram(ax, reliability_curve(probabilities, labels, n_bins=n_bins))
        _make_room_below(ax)
    else:
        ax.set_xlabel("confidence")
    return ax


def _draw_bars(ax: Axes, curve: ReliabilityCurve) -> None:
    edges, accuracy, confidence = (to_numpy(a) for a in (curve.edges, curve.accuracy, curve.confidence))
    filled = to_numpy(curve.counts) > 0
    left, width = edges[:-1][filled], np.diff(edges)[filled]
    ax.bar(left, accuracy[filled], width, align="edge", color=RIGHT, alpha=0.75, edgecolor="white", linewidth=0.8)
    # The gap goes from what the classifier achieved to what it claimed.
    gap = (confidence - accuracy)[filled]
    ax.bar(
        left, gap, width, bottom=accuracy[filled], align="edge", facecolor=WRONG, alpha=0.28, edgecolor=WRONG,
        linewidth=0.6, hatch="////",
    )  # fmt: skip
    ax.plot([0, 1], [0, 1], color=INK, linewidth=1.1, linestyle=(0, (4, 3)))


def _draw_band(ax: Axes, curve: ReliabilityCurve, low: Any, high: Any) -> None:
    centre = (to_numpy(curve.edges)[:-1] + to_numpy(curve.edges)[1:]) / 2
    accuracy, filled = to_numpy(curve.accuracy), to_numpy(curve.counts) > 0
    reach = np.clip([(accuracy - low)[filled], (high - accuracy)[filled]], 0, None)
    ax.errorbar(centre[filled], accuracy[filled], reach, fmt="none", ecolor=INK, elinewidth=1.2, capsize=2.5, alpha=0.9)


def _draw_histogram(ax: Axes, curve: ReliabilityCurve) -> None:
    strip = ax.inset_axes((0, -0.36, 1, 0.22), sharex=ax)
    open_axes(strip)
    edges, mass = to_numpy(curve.edges), to_numpy(curve.mass)
    strip.bar(edges[:-1], mass * 100, np.diff(edges), align="edge", color="#8b93a1", edgecolor="white", linewidth=0.8)
    means = (to_numpy(curve.confidence), to_numpy(curve.accuracy))
    for values, colour, name in zip(means, (WRONG, RIGHT), ("confidence", "accuracy"), strict=True):
        mean = float(np.nansum(values * mass))
        strip.axvline(mean, color=colour, linewidth=1.6, label=f"mean {name}")
    strip.set_ylabel("samples (%)", fontsize="small")
    strip.set_xlabel("confidence")
    strip.yaxis.set_major_locator(_few_ticks())
    strip.legend(frameon=False, fontsize="x-small", loc="upper left", labelcolor=INK)
    strip.spines["bottom"].set_color(FAINT)
    ax.tick_params(labelbottom=True)


def _make_room_below(ax: Axes) -> None:
    # Constrained layout forgets the label of axes inside axes.
    engine: Any = ax.figure.get_layout_engine()
    if engine is not None and len(ax.figure.axes) == 1:
        engine.set(h_pad=0.12)


def _few_ticks() -> Any:
    from matplotlib.ticker import MaxNLocator

    return MaxNLocator(3)
