"""The content of the metrics page, from the table of metrics."""

from __future__ import annotations

from typing import Any

from builder.methods import description_of
from densecal.metrics import METRICS

NEEDS = {
    "confidence": "top-1 confidence and correctness, or probabilities and labels",
    "distribution": "probabilities and labels",
    "in and out of domain": "confidences of an in-domain and of an out-of-domain set",
}


def metric_sections() -> list[dict[str, Any]]:
    """Return what the page says about each metric."""
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
