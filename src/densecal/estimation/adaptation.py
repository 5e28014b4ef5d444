"""Temperatures for an unlabelled batch: one for each group of similar log S, from its estimated accuracy.

The result is a piecewise linear function of log S, the log temperature of the per-sample fit, so the temperature of a
row does not depend on other rows once the batch has been read. Outside the range of the batch the temperature returns
to the per-sample fit. ``reproduction/studies/estimation.py`` determined the constants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from scipy.special import logit

from densecal.arrays import Array, asarray_like, namespace
from densecal.estimation.accuracy_model import AccuracyModel

GROUPS = 5
ENDS = (0.01, 0.99)
"""Quantiles of log S between which the batch determines the temperatures."""
FEW_SAMPLES = 20
"""The temperatures of a batch of this size lie halfway between the per-sample fit and its own groups."""
CLEAN_RANGE = 2.0
"""A batch is mostly treated as shifted if its predicted logit(accuracy) differs from that of clean data by more than
this many standard errors, which is what chance explains in batches of its size."""
SMALLEST_RISE = 0.02
"""A smaller rise of log S is no sign of a shift."""
SMALLEST_WEIGHT = 1e-6
"""Parts with less weight are ignored."""
SOLVER_ROWS = 2000
"""A group's temperature is first solved on about this many of its rows, then refined on all of them."""
_LOG_BOUND = 5.0
"""How far beyond the log temperatures of the fit the search extends, because the scale of logits is arbitrary."""
_LOG_TOLERANCE, _MOST_STEPS = 1e-4, 50
MeanConfidence = Callable[[Any, float], float]
"""The mean confidence of some rows of the batch at one log temperature."""


def map_log_temperatures(log_s: Array, adaptation: Array) -> Array:
    """Return the adapted log temperature of each row, from log S and an array of shape (2, n_knots).

    The first row of the array holds the knots in log S, the second the log temperatures there. Outside, the slope is 1.
    """
    xp = namespace(log_s)
    knots, values = asarray_like(adaptation, log_s)
    widths = knots[1:] - knots[:-1]
    slopes = (values[1:] - values[:-1]) / widths.clip(1e-12, None)
    steps = xp.minimum((log_s[:, None] - knots[:-1]).clip(0.0, None), widths)
    outside = (log_s - knots[0]).clip(None, 0.0) + (log_s - knots[-1]).clip(0.0, None)
    return values[0] + outside + xp.sum(steps * slopes, axis=1)


def adapt_to_batch(
    model: AccuracyModel,
    log_s: Any,
    signals: Any,
    mean_confidence: MeanConfidence,
    *,
    plain_confidence: float | None,
    clean_quartiles: Sequence[float],
) -> Any:
    """Return the knots of log S in a batch and the log temperatures there, of shape (2, n_knots).

    Samples of one domain need one temperature, samples of several domains one per group of similar log S. In a batch of
    one domain, the lower and the upper quartile of log S rise almost equally above those of clean data; in a batch that
    is partly clean, the lower one does not.

    A batch that looks clean gets ``plain_confidence``, the mean confidence of temperature scaling; with None it keeps
    the temperatures of the per-sample fit.
    """
    groups = _groups(log_s)
    knots = np.array([log_s[rows].mean() for rows in groups])
    doubt = model.doubt_of(signals)
    # Outliers have a huge log S, and the other rows of the batch may need the lowest.
    reach = (float(log_s.min()), float(log_s.max()))

    def solve(rows: Any, start: float) -> float:
        return solve_level(rows, model.predict(signals[rows], doubt), mean_confidence, start, reach)

    everything = np.arange(len(log_s))
    common = solve(everything, float(np.median(log_s)))
    solved = np.full(len(groups), common)
    lower, upper = np.quantile(log_s, (0.25, 0.75)) - np.asarray(clean_quartiles)
    # 0 for a batch of one domain, up to 1 for a batch of several.
    diversity = float(np.sqrt(1 - np.clip(lower / max(upper, SMALLEST_RISE), 0.0, 1.0)))
    if diversity:
        own = np.array([solve(rows, common) for rows in groups])
        solved += diversity * (own - common)
    by_chance = CLEAN_RANGE * max(model.chance_of(len(log_s)), 1e-6)
    cleanness = np.exp(-((model.shift_of(signals) / by_chance) ** 4))
    if cleanness > SMALLEST_WEIGHT:
        clean: Any = knots
        if plain_confidence is not None:
            clean = solve_level(everything, plain_confidence, mean_confidence, common, reach)
        solved += cleanness * (clean - solved)
    trust = len(log_s) / (len(log_s) + FEW_SAMPLES)
    values = knots + trust * (solved - knots)
    low, high = np.quantile(log_s, ENDS)
    knots = np.concatenate([[min(low, knots[0])], knots, [max(high, knots[-1])]])
    return return_to_fit(knots, np.concatenate([values[:1], values, values[-1:]]))


def return_to_fit(knots: Any, values: Any) -> Any:
    """Add a knot on both sides of the batch, beyond which the temperatures are those of the per-sample fit.

    The transition is as wide as the batch, and wide enough that the temperatures keep their order.
    """
    width, changes = knots[-1] - knots[0] + 1e-6, (values - knots)[[0, -1]]
    outer = np.array([knots[0] - max(width, -2 * changes[0]), knots[-1] + max(width, 2 * changes[1])])
    return np.stack([np.concatenate([outer[:1], one, outer[1:]]) for one in (knots, values)])


def _groups(log_s: Any) -> list[Any]:
    """Return the rows of each group of similar log S. Equal values, such as those of near inputs, stay together.

    The last group is repeated if there are fewer, so that all adapted copies have the same number of temperatures.
    """
    _, place, counts = np.unique(log_s, return_inverse=True, return_counts=True)
    middle = np.cumsum(counts) - counts / 2
    group = (GROUPS * middle / len(log_s)).astype(int)[place]
    found = [rows for number in range(GROUPS) if len(rows := np.flatnonzero(group == number))]
    return found + found[-1:] * (GROUPS - len(found))


def solve_level(
    rows: Any, accuracy: float, mean_confidence: MeanConfidence, start: float, reach: Sequence[float] = ()
) -> float:
    """Return the log temperature at which the mean confidence of the rows equals the accuracy.

    Secant steps from ``start`` on the logit scale, where the mean confidence is almost linear in the log temperature; a
    step that leaves the bracket is replaced by its middle. The bracket contains ``start`` and the log temperatures
    ``reach``.
    """
    stride = 1 + len(rows) // SOLVER_ROWS
    if stride > 1:
        start = solve_level(rows[::stride], accuracy, mean_confidence, start, reach)
    low, high, slope = min([start, *reach]) - _LOG_BOUND, max([start, *reach]) + _LOG_BOUND, -1.0
    level, step, before = start, 0.0, 0.0
    for _ in range(_MOST_STEPS):
        gap = _clipped_logit(mean_confidence(rows, level)) - _clipped_logit(accuracy)
        low, high = (level, high) if gap > 0 else (low, level)
        slope = (gap - before) / step if step else slope
        ahead = level - gap / slope if slope < 0 else np.inf
        following = ahead if low <= ahead <= high else (low + high) / 2
        level, step, before = following, following - level, gap
        if abs(step) <= _LOG_TOLERANCE:
            break
    return level


def _clipped_logit(share: float) -> float:
    return float(logit(min(max(share, 1e-9), 1 - 1e-9)))
