"""One page a method, from its class: the idea and the formula, the code, the paper, its figures."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pandas as pd

from builder import evidence
from builder.formulas import to_markdown
from densecal import METHODS
from densecal.calibrators.citation import Paper

SECTION = re.compile(r"\n(?:Parameters|Attributes|Examples|Returns|Notes)\n-+\n")


def idea_of(method: Any) -> str:
    """Return the text of a class's docstring, up to its first section, as Markdown."""
    return to_markdown(SECTION.split(inspect.cleandoc(method.__doc__) + "\n")[0].strip() + "\n").strip()


def cite(paper: Paper) -> str:
    """Write a paper's reference."""
    return f"{paper.authors}: *{paper.title}*, {paper.venue} {paper.year}"


def method_pages(demo: pd.DataFrame) -> list[dict[str, Any]]:
    """Return what each method's page shows."""
    pages = []
    for name, method in METHODS.items():
        shown = {"dac": ["uncalibrated", "ts", "dac", "dac-shift", "oracle"]}
        pages.append(
            {
                "short": name,
                "title": method.full_name,
                "keeps": method.accuracy_preserving,
                "summary": idea_of(method).split("\n\n")[0].replace("\n", " "),
                "idea": idea_of(method),
                "paper": cite(method.paper),
                "path": f"{method.__module__}.{method.__name__}",
                "class_name": method.__name__,
                "is_dac": name == "dac",
                "demo": evidence.demo_markdown(demo, shown.get(name, ["uncalibrated", name, f"dac+{name}", "oracle"])),
                "reproduced": evidence.reproduced(name),
            }
        )
    return pages
