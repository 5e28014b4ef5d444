"""A small canvas that writes SVG: scales, axes, lines and marks, all coloured by the page's CSS."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup, escape

Point = tuple[float, float]


@dataclass(frozen=True)
class Margin:
    """The room around the plotting area, in pixels."""

    top: float = 10
    right: float = 14
    bottom: float = 34
    left: float = 40


@dataclass
class Canvas:
    """A drawing of fixed size with linear scales.

    Examples
    --------
    >>> canvas = Canvas(100, 50, "A line", xlim=(0, 1), ylim=(0, 1), margin=Margin(0, 0, 0, 0))
    >>> canvas.line([(0, 0), (1, 1)], "curve")
    >>> "M0 50L100 0" in canvas.render()
    True
    """

    width: float
    height: float
    label: str
    xlim: tuple[float, float] = (0.0, 1.0)
    ylim: tuple[float, float] = (0.0, 1.0)
    margin: Margin = field(default_factory=Margin)
    kind: str = ""
    _parts: list[str] = field(default_factory=list)

    @property
    def left(self) -> float:
        """The plotting area's left edge."""
        return self.margin.left

    @property
    def right(self) -> float:
        """The plotting area's right edge."""
        return self.width - self.margin.right

    @property
    def top(self) -> float:
        """The plotting area's upper edge."""
        return self.margin.top

    @property
    def bottom(self) -> float:
        """The plotting area's lower edge."""
        return self.height - self.margin.bottom

    def x(self, value: float) -> float:
        """Return the pixel of a value on the x axis."""
        low, high = self.xlim
        return self.left + (value - low) / (high - low) * (self.right - self.left)

    def y(self, value: float) -> float:
        """Return the pixel of a value on the y axis."""
        low, high = self.ylim
        return self.bottom - (value - low) / (high - low) * (self.bottom - self.top)

    def add(self, markup: str) -> None:
        """Add SVG as it is."""
        self._parts.append(markup)

    def line(self, points: Sequence[Point], css: str, *, colour: str = "", tip: str = "") -> None:
        """Draw a line through points in data coordinates."""
        self.pixel_line([(self.x(a), self.y(b)) for a, b in points], css, colour=colour, tip=tip)

    def pixel_line(self, points: Sequence[Point], css: str, *, colour: str = "", tip: str = "") -> None:
        """Draw a line through points in pixels."""
        path = "M" + "L".join(f"{number(a)} {number(b)}" for a, b in points)
        self.add(f'<path class="{css}"{_style(colour)} d="{path}">{_tip(tip)}</path>')

    def area(self, lower: Sequence[Point], upper: Sequence[Point], css: str, *, colour: str = "") -> None:
        """Fill the room between two lines in data coordinates."""
        corners = [(self.x(a), self.y(b)) for a, b in [*upper, *reversed(lower)]]
        path = "M" + "L".join(f"{number(a)} {number(b)}" for a, b in corners) + "Z"
        self.add(f'<path class="{css}"{_style(colour)} d="{path}"/>')

    def box(self, x0: float, y0: float, x1: float, y1: float, css: str, *, colour: str = "", tip: str = "") -> None:
        """Fill a rectangle given by two corners in data coordinates."""
        left, right = sorted((self.x(x0), self.x(x1)))
        top, bottom = sorted((self.y(y0), self.y(y1)))
        size = f'width="{number(right - left)}" height="{number(bottom - top)}"'
        place = f'x="{number(left)}" y="{number(top)}" {size}'
        self.add(f'<rect class="{css}"{_style(colour)} {place}>{_tip(tip)}</rect>')

    def mark(self, a: float, b: float, shape: str, css: str, *, colour: str = "", tip: str = "", r: float = 4) -> None:
        """Draw a marker at a point in data coordinates."""
        path = marker_path(shape, self.x(a), self.y(b), r)
        self.add(f'<path class="{css}"{_style(colour)} d="{path}">{_tip(tip)}</path>')

    def dots(self, points: Iterable[Point], css: str, *, colour: str = "") -> None:
        """Draw many dots as one path."""
        path = "".join(f"M{number(self.x(a))} {number(self.y(b))}h0" for a, b in points)
        self.add(f'<path class="{css}"{_style(colour)} d="{path}"/>')

    def text(self, x: float, y: float, words: str, css: str = "", *, anchor: str = "middle", colour: str = "") -> None:
        """Write words at a pixel."""
        place = f'x="{number(x)}" y="{number(y)}" text-anchor="{anchor}"'
        self.add(f'<text class="{css}"{_style(colour)} {place}>{escape(words)}</text>')

    def x_axis(
        self,
        ticks: Iterable[float],
        name: str = "",
        *,
        show: Callable[[float], str] = "{:g}".format,
        grid: bool = False,
    ) -> None:
        """Write tick labels and a name below the plotting area."""
        for tick in ticks:
            if grid:
                self.pixel_line([(self.x(tick), self.top), (self.x(tick), self.bottom)], "grid")
            self.text(self.x(tick), self.bottom + 17, show(tick), "tick")
        if name:
            self.text((self.left + self.right) / 2, self.bottom + 33, name, "axis-name")

    def y_axis(
        self, ticks: Iterable[float], name: str = "", *, show: Callable[[float], str] = "{:g}".format, grid: bool = True
    ) -> None:
        """Write tick labels left of the plotting area, and its name above them."""
        for tick in ticks:
            if grid:
                self.pixel_line([(self.left, self.y(tick)), (self.right, self.y(tick))], "grid")
            self.text(self.left - 7, self.y(tick) + 4, show(tick), "tick", anchor="end")
        if name:
            self.text(0, self.top - 12, name, "axis-name", anchor="start")

    def render(self) -> Markup:
        """Return the drawing as safe markup."""
        head = (
            f'<svg class="chart {self.kind}" viewBox="0 0 {number(self.width)} {number(self.height)}" role="img" '
            f'aria-label="{escape(self.label)}">'
        )
        return Markup(head + "".join(self._parts) + "</svg>")


def number(value: float) -> str:
    """Write a pixel with at most one decimal, and no trailing zero.

    Examples
    --------
    >>> number(3.04), number(2.5)
    ('3', '2.5')
    """
    return f"{value:.1f}".rstrip("0").rstrip(".") if math.isfinite(value) else "0"


def nice_ticks(high: float, count: int = 5) -> list[float]:
    """Return round ticks from zero to at least ``high``.

    Examples
    --------
    >>> nice_ticks(23)
    [0.0, 5.0, 10.0, 15.0, 20.0, 25.0]
    """
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
    """Return the path of a marker; a shape that is not known is a circle.

    Examples
    --------
    >>> marker_path("s", 10, 10, 10)
    'M1.5 1.5L18.5 1.5L18.5 18.5L1.5 18.5Z'
    """
    if shape in _POLYGONS:
        corners = (f"{number(x + r * a)} {number(y + r * b)}" for a, b in _POLYGONS[shape])
        return "M" + "L".join(corners) + "Z"
    d = number(2 * r)
    return f"M{number(x - r)} {number(y)}a{number(r)} {number(r)} 0 1 0 {d} 0a{number(r)} {number(r)} 0 1 0 -{d} 0Z"


def _style(colour: str) -> str:
    return f' style="--c:{colour}"' if colour else ""


def _tip(words: str) -> str:
    return f"<title>{escape(words)}</title>" if words else ""
