"""The page of metrics, from their table: each definition, its range and where it was published."""

from __future__ import annotations

import inspect
import math
from typing import Any

from builder.formulas import to_markdown
from builder.methods import SECTION
from densecal.metrics import METRICS

NEEDS = {
    "confidence": "top-1 confidence and correctness, or probabilities and labels",
    "distribution": "the probabilities of all classes, and labels",
    "in and out of domain": "the confidences of an in-domain and of an out-of-domain set",
}


def measure_sections() -> list[dict[str, Any]]:
    """Return the page's section on each metric."""
    sections = []
    for name, metric in METRICS.items():
        text = SECTION.split(inspect.cleandoc(metric.function.__doc__ or "") + "\n")[0].strip()
        options = ", ".join(f"{key}={value!r}" for key, value in metric.options.items())
        first = "in_domain, out_of_domain" if metric.needs == "in and out of domain" else "probabilities, labels"
        sections.append(
            {
                "name": name,
                "symbol": metric.symbol,
                "description": metric.description,
                "text": to_markdown(text + "\n").strip(),
                "better": metric.better,
                "range": f"0 to {_bound(metric.largest)}",
                "needs": NEEDS[metric.needs],
                "paper": metric.citation,
                "call": f"densecal.metrics.{metric.function.__name__}({first}{', ' + options if options else ''})",
            }
        )
    return sections


def _bound(largest: float) -> str:
    return f"{largest:g}" if largest == math.floor(largest) else f"{largest:.1f}"
