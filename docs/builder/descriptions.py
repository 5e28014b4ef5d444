"""The content of the pages on methods and metrics, from the classes, the functions and the results."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pandas as pd

from builder import evidence
from builder.formulas import to_markdown
from densecal import METHODS
from densecal.metrics import METRICS
from densecal.shift import PERTURBATIONS

SECTION = re.compile(r"\n(?:Parameters|Attributes|Examples|Returns|Notes)\n-+\n")
NEEDS = {
    "confidence": "top-1 confidence and correctness, or probabilities and labels",
    "distribution": "probabilities and labels",
    "in and out of domain": "confidences of an in-domain and of an out-of-domain set",
}

MAY_CHANGE_CHARACTERS = ("rotate", "flip", "grid_shuffle")
"""Perturbations that may turn a digit or a letter into another one."""


def description_of(documented: object) -> str:
    """Return a docstring up to its first section, as Markdown."""
    return to_markdown(SECTION.split((inspect.getdoc(documented) or "") + "\n")[0].strip() + "\n").strip()


def method_pages(demo: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the content of each method's page."""
    shown = {"dac": ["uncalibrated", "ts", "dac", "dac-shift", "oracle"]}
    return [
        {
            "short": name,
            "title": method.full_name,
            "keeps": method.accuracy_preserving,
            "description": description_of(method),
            "citation": str(method.citation),
            "class_name": method.__name__,
            "demo": evidence.demo_markdown(demo, shown.get(name, ["uncalibrated", name, f"dac+{name}", "oracle"])),
            "reproduced": evidence.reproduced(name),
        }
        for name, method in METHODS.items()
    ]


def metric_sections() -> list[dict[str, Any]]:
    """Return the content of the section on each metric."""
    sections = []
    for name, metric in METRICS.items():
        options = "".join(f", {key}={value!r}" for key, value in metric.options.items())
        first = "in_domain, out_of_domain" if metric.needs == "in and out of domain" else "probabilities, labels"
        sections.append(
            {
                "name": name,
                "symbol": metric.symbol,
                "description": metric.description,
                "text": description_of(metric.function),
                "better": metric.better,
                "range": f"0 to {metric.largest:.3g}",
                "needs": NEEDS[metric.needs],
                "citation": metric.citation,
                "call": f"densecal.metrics.{metric.function.__name__}({first}{options})",
            }
        )
    return sections


def perturbation_rows() -> list[dict[str, Any]]:
    """Return the rows of the table of perturbations."""
    return [
        {
            "name": name,
            "family": kind.family,
            "description": kind.description,
            "may_change_characters": name in MAY_CHANGE_CHARACTERS,
        }
        for name, kind in PERTURBATIONS.items()
    ]
