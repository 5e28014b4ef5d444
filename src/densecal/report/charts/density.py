"""What DAC learned: the share of each layer, and the temperature as a function of distance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from markupsafe import Markup

from densecal.arrays import Array
from densecal.display import percent
from densecal.plots.layers import thinned
from densecal.plots.style import severity_index
from densecal.report.svg import Canvas, Margin, nice_ticks, number

WIDTH = 420.0
POINTS_PER_SEVERITY = 160
LARGEST_RADIUS = 34.0
LONGEST_NAME = 18


def layer_chart(importance: Mapping[str, float]) -> Markup:
    """Draw one circle per layer, from the input on the left to the logits on the right; its area is the share."""
    leading = max(importance, key=lambda name: importance[name])
    label = f"Share of each layer in DAC's temperature; {leading} has the largest, {percent(importance[leading])}."
    tilted = max(map(len, importance)) * len(importance) * 7.2 > WIDTH - 60
    height, below = (240, 96) if tilted else (190, 34)
    xlim = (-0.6, len(importance) - 0.4)
    canvas = Canvas((WIDTH, height), label, xlim=xlim, margin=Margin(40, 14, below, 14), kind="layers")
    middle = (canvas.top + canvas.bottom) / 2
    canvas.pixel_line([(canvas.x(0), middle), (canvas.x(len(importance) - 1), middle)], "thread")
    largest = min(LARGEST_RADIUS, (canvas.x(1) - canvas.x(0)) * 0.62)
    for place, (name, share) in enumerate(importance.items()):
        x = canvas.x(place)
        circle = f'cx="{number(x)}" cy="{number(middle)}" r="{number(max(2.5, largest * share**0.5))}"'
        canvas.add("circle", "blob" if share > 0 else "blob empty", circle, tip=percent(share))
        if share >= 0.005:
            canvas.text((x, middle - largest - 8), percent(share), "value")
        if tilted:
            short = name if len(name) <= LONGEST_NAME else "…" + name[1 - LONGEST_NAME :]
            canvas.text((x, canvas.bottom + 10), short, "tick", anchor="end", tilt=-40)
        else:
            canvas.text((x, canvas.bottom + 20), name, "tick")
    return canvas.render()


def temperature_chart(samples: Mapping[str, Array], name: str) -> Markup:
    """Draw temperature against distance (the columns of each level): a dot per sample, and a large dot per mean."""
    (near, far), (low, high) = (_range([found[:, column] for found in samples.values()]) for column in (0, 1))
    low = min(1.0, low)
    means = {level: (float(found[:, 0].mean()), float(found[:, 1].mean())) for level, found in samples.items()}
    first, last = (list(means)[place] for place in (0, -1))
    label = (
        f"Temperature against {name}. The mean temperature is {means[first][1]:.2f} on {first} and "
        f"{means[last][1]:.2f} at {last}."
    )
    step = nice_ticks(max(high, 1.05) - low, 4)[1]
    floor = np.floor((low - 0.05 * (high - low)) / step) * step
    ticks = [round(float(tick), 10) for tick in np.arange(max(0.0, floor), high + step, step)]
    edge = 0.03 * (far - near or 1)
    limits = {"xlim": (near - edge, far + edge), "ylim": (ticks[0], ticks[-1])}
    canvas = Canvas((WIDTH, 290), label, **limits, margin=Margin(28, 14, 42, 34), kind="temperature")
    canvas.y_axis(ticks, "temperature S(x)")
    canvas.x_axis(_ticks_between(near, far), name)
    canvas.line([(near - edge, 1), (far + edge, 1)], "zero")
    for place, found in enumerate(samples.values()):
        dots = found[thinned(len(found), POINTS_PER_SEVERITY)]
        shown = [(x, y) for x, y in dots if x <= far and y <= ticks[-1]]
        canvas.dots(shown, "dots", colour=severity_colour(place, len(samples)))
    for place, (level, mean) in enumerate(means.items()):
        tip = f"{level}: mean temperature {mean[1]:.2f}"
        canvas.mark(mean, "o", "mean", colour=severity_colour(place, len(samples)), tip=tip, r=7)
    return canvas.render()


def severity_colour(place: int, count: int) -> str:
    """Return the CSS colour of the n-th of ``count`` severities."""
    return f"var(--s-{severity_index(place, count)})"


def _range(several: Sequence[Array]) -> tuple[float, float]:
    """Return the range of all values without the most extreme 0.2 % at each end."""
    ends = [np.quantile(one, [0.002, 0.998]) for one in several]
    return float(min(low for low, _ in ends)), float(max(high for _, high in ends))


def _ticks_between(low: float, high: float) -> list[float]:
    step = nice_ticks(high - low, 4)[1]
    first = np.ceil(low / step) * step
    return [round(float(tick), 10) for tick in np.arange(first, high + step * 1e-6, step)]
