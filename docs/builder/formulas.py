"""Docstrings as Markdown: formulas, roles and literals.

matplotlib draws a formula as an inline SVG in the colour of the text, so pages show mathematics without scripts.
"""

from __future__ import annotations

import re
import textwrap
from functools import cache
from html import escape
from typing import Any

import griffe

UNKNOWN = {r"\le ": r"\leq ", r"\Big": "", r"\big": "", r"\text{": r"\mathrm{", r"\frac": r"\dfrac"}
"""Commands that matplotlib does not know or draws too small, and their replacements."""
POINTS = 10.0
BLOCK = re.compile(r"^(?P<indent> *)\.\. math::(?P<same>[^\n]*)\n(?P<rest>(?:(?P=indent) +[^\n]*\n|[ ]*\n)*)", re.M)
INLINE = re.compile(r":math:`([^`]+)`")
ROLE = re.compile(r":(?:func|class|data|meth|attr):`~?([^`]+)`")
LITERAL = re.compile(r"``([^`]+)``")


def draw_formula(formula: str, *, block: bool = False) -> str:
    """Return one line of HTML with the formula as an inline SVG."""
    path, left, bottom, width, height = _outline(" ".join(formula.split()))
    label = escape(formula, quote=True).replace("\n", " ")
    # Sizes in em scale with the text.
    style = f"width:{width / POINTS:.3f}em;height:{height / POINTS:.3f}em;vertical-align:{bottom / POINTS:.3f}em"
    drawing = (
        f'<svg class="formula" role="img" aria-label="{label}" style="{style}" '
        f'viewBox="{left:.2f} {-bottom - height:.2f} {width:.2f} {height:.2f}"><path d="{path}"/></svg>'
    )
    return f'<p class="formula-block">{drawing}</p>' if block else drawing


@cache
def _outline(formula: str) -> tuple[str, float, float, float, float]:
    from matplotlib import rc_context
    from matplotlib.textpath import TextPath

    for unknown, known in UNKNOWN.items():
        formula = formula.replace(unknown, known)
    with rc_context({"mathtext.fontset": "stix"}):
        drawn = TextPath((0, 0), f"${formula}$", size=POINTS)
    pieces = []
    for points, code in drawn.iter_segments(curves=True, simplify=False):
        letter = {1: "M", 2: "L", 3: "Q", 4: "C", 79: "Z"}[int(code)]
        numbers = "" if letter == "Z" else " ".join(f"{x:.2f} {-y:.2f}" for x, y in points.reshape(-1, 2))
        pieces.append(letter + numbers)
    box = drawn.get_extents()
    pad = 0.5
    return "".join(pieces), box.x0 - pad, box.y0 - pad, box.width + 2 * pad, box.height + 2 * pad


def to_markdown(text: str) -> str:
    """Turn a docstring's formulas, roles and literals into Markdown."""

    def block(match: re.Match[str]) -> str:
        formula = f"{match['same']}\n{textwrap.dedent(match['rest'])}".strip()
        return f"{match['indent']}{draw_formula(formula, block=True)}\n\n"

    text = BLOCK.sub(block, text)
    text = INLINE.sub(lambda match: draw_formula(match[1]), text)
    text = ROLE.sub(lambda match: f"`{match[1].rsplit('.', 1)[-1]}`", text)
    return LITERAL.sub(r"`\1`", text)


class Docstrings(griffe.Extension):
    """A griffe extension that converts docstrings for mkdocstrings."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = to_markdown(obj.docstring.value)
