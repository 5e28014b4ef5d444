"""The accuracy on each test set: what temperature scaling claims, what is estimated without labels, and the truth."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from densecal.calibrators.base import Calibrator
from densecal.calibrators.unlabelled import accuracy_model, can_estimate, sample_signals
from densecal.estimation.accuracy import AccuracyEstimate
from densecal.estimation.signals import SampleSignals
from densecal.report.charts.estimates import estimates_chart
from densecal.report.text import listed, percent, severity_name

if TYPE_CHECKING:
    from densecal.evaluation import EvaluationTable

MOST_SETS = 24
"""More test sets than this are pooled by severity."""
NARROW = 350


@dataclass(frozen=True)
class EstimatedSet:
    """The estimated and the true accuracy of one test set."""

    name: str
    estimate: AccuracyEstimate
    accuracy: float

    def to_dict(self) -> dict[str, Any]:
        """Return the values for JSON."""
        return {"name": self.name, "true_accuracy": self.accuracy, **self.estimate.to_dict()}


def estimate_sets(
    table: EvaluationTable, calibrators: Mapping[str, Calibrator], preferred: str = ""
) -> list[EstimatedSet]:
    """Estimate the accuracy on each test set, or at each severity if there are many; empty if no calibrator can."""
    name = next(
        (name for name in (preferred, *calibrators) if name in calibrators and can_estimate(calibrators[name])), ""
    )
    if not name:
        return []
    calibrator = calibrators[name]
    parts: dict[str, list[Any]] = {}
    right: dict[str, list[float]] = {}
    sets_at = Counter(condition.level for condition in table.conditions)
    for place, condition in enumerate(table.conditions):
        known = table.distances.get((name, str(condition)))
        outputs = condition.loaded if known is None else condition.loaded.with_distances(known)
        is_one_row = len(table.conditions) > MOST_SETS or sets_at[condition.level] == 1
        title = severity_name(condition.level) if is_one_row else str(condition)
        columns = sample_signals(calibrator, outputs).to_columns()
        parts.setdefault(title, []).append(columns)
        right.setdefault(title, []).append(len(columns) * table.values[table.methods[0], "accuracy"][place])
    model, stage = accuracy_model(calibrator), calibrator.density_stage
    layers = () if stage is None else stage.layers_
    found = []
    for title, columns in parts.items():
        signals = SampleSignals.from_columns(np.concatenate(columns))
        estimate = signals.estimate(model, layers)
        found.append(EstimatedSet(title, estimate, sum(right[title]) / estimate.n_samples))
    return found


def estimates_section(sets: Sequence[EstimatedSet]) -> dict[str, Any] | None:
    """Return the charts and the summary of the section, or None without estimates."""
    if not sets:
        return None
    return {
        "sets": sets,
        "wide": estimates_chart(sets),
        "narrow": estimates_chart(sets, width=NARROW),
        "summary": summarise(sets),
    }


def summarise(sets: Sequence[EstimatedSet]) -> str:
    """Return how far the claims and the estimates are from the truth on average, as one sentence."""
    claimed = float(np.mean([abs(one.estimate.plain_confidence - one.accuracy) for one in sets]))
    estimated = float(np.mean([abs(one.estimate.accuracy - one.accuracy) for one in sets]))
    inside = sum(one.estimate.low <= one.accuracy <= one.estimate.high for one in sets)
    where = "" if len(sets) == 1 else " on average"
    worst = max(sets, key=lambda one: abs(one.estimate.plain_confidence - one.accuracy))
    parts = [
        f"temperature scaling claims {percent(worst.estimate.plain_confidence)}",
        f"densecal estimates {percent(worst.estimate.accuracy)}",
        f"{percent(worst.accuracy)} are right",
    ]
    sets_word = "test set" if len(sets) == 1 else "test sets"
    return (
        f"Without labels, densecal estimates the accuracy to {100 * estimated:.1f} points{where}, temperature scaling "
        f"to {100 * claimed:.1f}. At worst ({worst.name}), {listed(parts)}. The interval holds the truth "
        f"on {inside} of {len(sets)} {sets_word}."
    )
