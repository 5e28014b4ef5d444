"""A small canvas that writes SVG: scales, axes, lines and marks, coloured by the page's CSS."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from markupsafe import Markup, escape

Point = tuple[float, float]
Show = Callable[[float], str]
"""How an axis writes a tick."""
NARROW, WIDE = 350, 500.0
"""The width of a drawing for narrow pages, and the one above which a drawing has room for more, in pixels."""
NAME_WIDTH, NAME_GAP = 7.2, 14.0
"""The width of a character in the name of a row, and the space around the name, in pixels."""


class Margin(NamedTuple):
    """The space around the plotting area, in pixels."""

    top: float = 10
    right: float = 14
    bottom: float = 34
    left: float = 40


class Canvas:
    """A drawing of fixed size with linear scales; ``left``, ``right``, ``top`` and ``bottom`` are its plotting area."""

    def __init__(
        self,
        size: tuple[float, float],
        label: str,
        *,
        xlim: tuple[float, float] = (0.0, 1.0),
        ylim: tuple[float, float] = (0.0, 1.0),
        margin: Margin | None = None,
        kind: str = "",
    ) -> None:
        self.size, self.label, self.kind = size, label, kind
        self.xlim, self.ylim = xlim, ylim
        margin = margin or Margin()
        self.left, self.top = margin.left, margin.top
        self.right, self.bottom = size[0] - margin.right, size[1] - margin.bottom
        self._parts: list[str] = []

    def x(self, value: float) -> float:
        """Return the x pixel of a value."""
        low, high = self.xlim
        return self.left + (value - low) / (high - low) * (self.right - self.left)

    def y(self, value: float) -> float:
        """Return the y pixel of a value."""
        low, high = self.ylim
        return self.bottom - (value - low) / (high - low) * (self.bottom - self.top)

    def add(self, tag: str, css: str, attributes: str, *, colour: str = "", tip: str = "", text: str = "") -> None:
        """Add one element, with the colour of its method and a tooltip."""
        style = f' style="--c:{colour}"' if colour else ""
        title = f"<title>{escape(tip)}</title>" if tip else ""
        self._parts.append(f'<{tag} class="{css}"{style} {attributes}>{title}{escape(text)}</{tag}>')

    def line(self, points: Sequence[Point], css: str, *, colour: str = "") -> None:
        """Draw a line through points in data coordinates."""
        self.pixel_line([(self.x(a), self.y(b)) for a, b in points], css, colour=colour)

    def pixel_line(self, points: Sequence[Point], css: str, *, colour: str = "") -> None:
        """Draw a line through points in pixels."""
        self.add("path", css, f'd="{_path(points)}"', colour=colour)

    def area(self, lower: Sequence[Point], upper: Sequence[Point], css: str, *, colour: str = "") -> None:
        """Fill the area between two lines in data coordinates."""
        corners = [(self.x(a), self.y(b)) for a, b in [*upper, *reversed(lower)]]
        self.add("path", css, f'd="{_path(corners)}Z"', colour=colour)

    def box(self, x: Point, y: Point, css: str, *, tip: str = "") -> None:
        """Fill a rectangle given by its ends on both axes in data coordinates."""
        left, right = sorted(map(self.x, x))
        top, bottom = sorted(map(self.y, y))
        self.pixel_box(left, top, (right - left, bottom - top), css, tip=tip)

    def pixel_box(self, left: float, top: float, size: Point, css: str, *, tip: str = "", rx: float = 0) -> None:
        """Fill a rectangle in pixels."""
        place = f'x="{number(left)}" y="{number(top)}" width="{number(size[0])}" height="{number(size[1])}"'
        self.add("rect", css, place + (f' rx="{number(rx)}"' if rx else ""), tip=tip)

    def mark(self, at: Point, shape: str, css: str, *, colour: str = "", tip: str = "", r: float = 4) -> None:
        """Draw a marker at a point in data coordinates."""
        path = marker_path(shape, self.x(at[0]), self.y(at[1]), r)
        self.add("path", css, f'd="{path}"', colour=colour, tip=tip)

    def dots(self, points: Iterable[Point], css: str, *, colour: str = "") -> None:
        """Draw many dots as one path."""
        path = "".join(f"M{number(self.x(a))} {number(self.y(b))}h0" for a, b in points)
        self.add("path", css, f'd="{path}"', colour=colour)

    def row_name(self, y: float, name: str) -> None:
        """Write the name of a row left of the plotting area, shortened to the space there."""
        room = int((self.left - NAME_GAP) / NAME_WIDTH + 1e-6)
        self.text((self.left - 12, y), shortened(name, room), "row-name", anchor="end")

    def text(
        self, at: Point, words: str, css: str, *, anchor: str = "middle", colour: str = "", tilt: float = 0
    ) -> None:
        """Write text at a position in pixels."""
        x, y = map(number, at)
        turn = f' transform="rotate({number(tilt)} {x} {y})"' if tilt else ""
        self.add("text", css, f'x="{x}" y="{y}" text-anchor="{anchor}"{turn}', colour=colour, text=words)

    def x_axis(self, ticks: Iterable[float], name: str = "", *, show: Show = "{:g}".format, grid: bool = False) -> None:
        """Write tick labels and a name below the plotting area."""
        for tick in ticks:
            if grid:
                self.pixel_line([(self.x(tick), self.top), (self.x(tick), self.bottom)], "grid")
            self.text((self.x(tick), self.bottom + 17), show(tick), "tick")
        if name:
            self.text(((self.left + self.right) / 2, self.bottom + 33), name, "axis-name")

    def y_axis(self, ticks: Iterable[float], name: str = "", *, show: Show = "{:g}".format) -> None:
        """Write tick labels left of the plotting area, and a name above them."""
        for tick in ticks:
            self.pixel_line([(self.left, self.y(tick)), (self.right, self.y(tick))], "grid")
            self.text((self.left - 7, self.y(tick) + 4), show(tick), "tick", anchor="end")
        if name:
            self.text((0, self.top - 12), name, "axis-name", anchor="start")

    def render(self) -> Markup:
        """Return the drawing as safe markup."""
        width, height = map(number, self.size)
        head = f'<svg class="chart {self.kind}" viewBox="0 0 {width} {height}" role="img" aria-label="'
        return Markup(f'{head}{escape(self.label)}">{"".join(self._parts)}</svg>')


def in_percent(share: float) -> str:
    """Write a tick of an axis in per cent."""
    return f"{100 * share:.0f}"


def number(value: float) -> str:
    """Format a pixel coordinate with at most one decimal."""
    return f"{value:.1f}".rstrip("0").rstrip(".") if math.isfinite(value) else "0"


def _path(points: Iterable[Point]) -> str:
    return "M" + "L".join(f"{number(a)} {number(b)}" for a, b in points)


def name_margin(names: Iterable[str], width: float, *, share: float = 0.3) -> float:
    """Return the left margin that the names of rows need, at most a share of the width."""
    return min(NAME_GAP + NAME_WIDTH * max(map(len, names)), share * width)


def shortened(text: str, longest: int) -> str:
    """Return the text, shortened to at most ``longest`` characters."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def nice_ticks(high: float, count: int = 5) -> list[float]:
    """Return round ticks from zero to at least ``high``."""
    if high <= 0 or not math.isfinite(high):
        return [0.0, 1.0]
    rough = high / count
    power = 10 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough)
    return [float(round(place * step, 10)) for place in range(math.ceil(high / step - 1e-9) + 1)]


_POLYGONS: dict[str, list[Point]] = {
    "s": [(-0.85, -0.85), (0.85, -0.85), (0.85, 0.85), (-0.85, 0.85)],
    "^": [(0, -1.1), (1, 0.8), (-1, 0.8)],
    "v": [(0, 1.1), (1, -0.8), (-1, -0.8)],
    "<": [(-1.1, 0), (0.8, 1), (0.8, -1)],
    ">": [(1.1, 0), (-0.8, 1), (-0.8, -1)],
    "D": [(0, -1.2), (1.2, 0), (0, 1.2), (-1.2, 0)],
    "d": [(0, -1.3), (0.8, 0), (0, 1.3), (-0.8, 0)],
    "P": [(-.4, -1.1), (.4, -1.1), (.4, -.4), (1.1, -.4), (1.1, .4), (.4, .4), (.4, 1.1), (-.4, 1.1), (-.4, .4),
          (-1.1, .4), (-1.1, -.4), (-.4, -.4)],
    "X": [(-1, -.5), (-.5, -1), (0, -.5), (.5, -1), (1, -.5), (.5, 0), (1, .5), (.5, 1), (0, .5), (-.5, 1), (-1, .5),
          (-.5, 0)],
}  # fmt: skip


def marker_path(shape: str, x: float, y: float, r: float) -> str:
    """Return the path of a marker; an unknown shape is a circle."""
    if shape in _POLYGONS:
        return _path((x + r * a, y + r * b) for a, b in _POLYGONS[shape]) + "Z"
    half = f"a{number(r)} {number(r)} 0 1 0"
    return f"M{number(x - r)} {number(y)}{half} {number(2 * r)} 0{half} {number(-2 * r)} 0Z"
