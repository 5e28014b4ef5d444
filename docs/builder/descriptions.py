"""The content of the pages on methods and metrics, from docstrings and results."""

from __future__ import annotations

import inspect
import re
from typing import Any

import pandas as pd

from builder import evidence
from builder.formulas import to_markdown
from densecal import METHODS
from densecal.metrics import Metric

SECTION = re.compile(r"\n(?:Parameters|Attributes|Examples|Returns|Notes)\n-+\n")


def description_of(documented: object) -> str:
    """Return a docstring up to its first section, as Markdown."""
    return to_markdown(SECTION.split((inspect.getdoc(documented) or "") + "\n")[0].strip() + "\n").strip()


def method_pages(demo: pd.DataFrame) -> list[dict[str, Any]]:
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


def call_of(metric: Metric) -> str:
    """Return the call of a metric's function, with its options."""
    options = "".join(f", {key}={value!r}" for key, value in metric.options.items())
    first = "in_domain, out_of_domain" if metric.needs == "in and out of domain" else "probabilities, labels"
    return f"densecal.metrics.{metric.function.__name__}({first}{options})"
