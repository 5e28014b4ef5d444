"""What DAC learned: the layers it listens to, and the temperature it gives near and far from the training data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from markupsafe import Markup

from densecal.report.svg import Canvas, Margin, nice_ticks, number
from densecal.report.words import percent, severity_name

POINTS_A_SEVERITY = 160
LARGEST_RADIUS = 34.0


def layer_chart(importance: Mapping[str, float], *, width: float = 420) -> Markup:
    """Draw a blob a layer, from the input on the left to the logits on the right; its area is the layer's share."""
    names = list(importance)
    shares = [importance[name] for name in names]
    leading = max(importance, key=lambda name: importance[name])
    label = f"Share of each layer in DAC's temperature; {leading} has the largest, {percent(importance[leading])}."
    tilted = max(map(len, names)) * len(names) * 7.2 > width - 60
    height, margin = (240, Margin(40, 14, 96, 14)) if tilted else (190, Margin(40, 14, 34, 14))
    canvas = Canvas(width, height, label, (-0.6, len(names) - 0.4), (0, 1), margin, "layers")
    middle = (canvas.top + canvas.bottom) / 2
    canvas.pixel_line([(canvas.x(0), middle), (canvas.x(len(names) - 1), middle)], "thread")
    room = (canvas.x(1) - canvas.x(0)) * 0.62
    for place, (name, share) in enumerate(zip(names, shares, strict=True)):
        radius = max(2.5, min(LARGEST_RADIUS, room) * float(np.sqrt(share)))
        x = canvas.x(place)
        css = "blob" if share > 0 else "blob empty"
        circle = f'cx="{number(x)}" cy="{number(middle)}" r="{number(radius)}"'
        canvas.add(f'<circle class="{css}" {circle}><title>{percent(share)}</title></circle>')
        if share >= 0.005:
            canvas.text(x, middle - min(LARGEST_RADIUS, room) - 8, percent(share), "value")
        _name_layer(canvas, x, name, tilted=tilted)
    return canvas.render()


def _name_layer(canvas: Canvas, x: float, name: str, *, tilted: bool) -> None:
    if not tilted:
        canvas.text(x, canvas.bottom + 20, name, "tick")
        return
    y = canvas.bottom + 10
    short = name if len(name) <= 18 else "…" + name[-17:]
    turn = f'transform="rotate(-40 {number(x)} {number(y)})"'
    canvas.add(
        f'<text class="tick" x="{number(x)}" y="{number(y)}" text-anchor="end" {turn}>{Markup.escape(short)}</text>'
    )


def temperature_chart(
    distances: Mapping[int, Any], temperatures: Mapping[int, Any], *, name: str, width: float = 420
) -> Markup:
    """Draw temperature against distance: a dot a sample, coloured by severity, and a large one for each mean."""
    high = max(float(np.quantile(values, 0.998)) for values in temperatures.values())
    far = max(float(np.quantile(values, 0.998)) for values in distances.values())
    near = min(float(np.quantile(values, 0.002)) for values in distances.values())
    ends = [float(np.mean(values)) for values in temperatures.values()]
    severities = list(temperatures)
    label = (
        f"Temperature against {name}. The mean temperature is {ends[0]:.2f} on {severity_name(severities[0])} and "
        f"{ends[-1]:.2f} at {severity_name(severities[-1])}."
    )
    low = min(1.0, *(float(np.quantile(values, 0.002)) for values in temperatures.values()))
    step = nice_ticks(max(high, 1.05) - low, 4)[1]
    floor = np.floor((low - 0.05 * (high - low)) / step) * step
    ticks = [round(float(tick), 10) for tick in np.arange(max(0.0, floor), high + step, step)]
    span = (near - 0.03 * (far - near or 1), far + 0.03 * (far - near or 1))
    canvas = Canvas(width, 290, label, span, (ticks[0], ticks[-1]), Margin(28, 14, 42, 34), "temperature")
    canvas.y_axis(ticks, "temperature S(x)")
    canvas.x_axis(_ticks_between(near, far), name)
    canvas.line([(span[0], 1), (span[1], 1)], "zero")
    for place, severity in enumerate(severities):
        x, y = np.asarray(distances[severity], float), np.asarray(temperatures[severity], float)
        rows = np.linspace(0, len(x) - 1, min(len(x), POINTS_A_SEVERITY)).astype(int)
        dots = [(a, b) for a, b in zip(x[rows], y[rows], strict=True) if a <= far and b <= ticks[-1]]
        canvas.dots(dots, "dots", colour=severity_colour(place, len(severities)))
    for place, severity in enumerate(severities):
        mean = float(np.mean(distances[severity])), float(np.mean(temperatures[severity]))
        tip = f"{severity_name(severity)}: mean temperature {mean[1]:.2f}"
        canvas.mark(*mean, "o", "mean", colour=severity_colour(place, len(severities)), tip=tip, r=7)
    return canvas.render()


def severity_colour(place: int, count: int) -> str:
    """Return the CSS colour of the n-th of several severities.

    Examples
    --------
    >>> severity_colour(0, 6), severity_colour(5, 6), severity_colour(0, 1)
    ('var(--s-0)', 'var(--s-5)', 'var(--s-0)')
    """
    return f"var(--s-{round(place * 5 / max(1, count - 1))})"


def _ticks_between(low: float, high: float) -> list[float]:
    step = nice_ticks(high - low, 4)[1]
    first = np.ceil(low / step) * step
    return [round(float(tick), 10) for tick in np.arange(first, high + step * 1e-6, step)]
