"""The accuracy on each test set: claimed by temperature scaling, estimated without labels, and true."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from densecal.arrays import softmax
from densecal.calibrators import UNCALIBRATED
from densecal.calibrators.base import Calibrator
from densecal.calibrators.dac.unlabelled_batch import accuracy_model, can_estimate, sample_signals
from densecal.display import counted, percent
from densecal.estimation.accuracy_estimate import AccuracyEstimate
from densecal.estimation.signals import SampleSignals
from densecal.evaluation import EvaluationTable
from densecal.metrics import accuracy
from densecal.report.svg import NARROW, WIDE, Canvas, Margin, in_percent, marker_path, name_margin
from densecal.report.tables import measured_outputs
from densecal.report.text import level_name, listed

MOST_SETS = 24
"""More test sets are pooled by severity."""
ROW_HEIGHT = 38.0
COLUMN = 46.0
MARKS = {"claim": "o", "estimate": "o", "truth": "D"}


@dataclass(frozen=True)
class EstimatedSet:
    """The estimated and the true accuracy of one test set, or of several that are pooled."""

    name: str
    estimate: AccuracyEstimate
    accuracy: float
    n_sets: int = 1

    def to_dict(self) -> dict[str, Any]:
        """Return the values for JSON."""
        return {"name": self.name, "true_accuracy": self.accuracy, **self.estimate.to_dict()}


def estimate_sets(
    table: EvaluationTable, calibrators: Mapping[str, Calibrator], preferred: str = ""
) -> list[EstimatedSet]:
    """Return the accuracies of each test set, or of each severity if there are many; empty without an estimate."""
    able = [name for name, one in calibrators.items() if can_estimate(one)]
    if not able:
        return []
    name = preferred if preferred in able else able[0]
    calibrator = calibrators[name]
    model, stage = accuracy_model(calibrator), calibrator.density_stage
    layers = () if stage is None else stage.layers_
    sets_at = Counter(condition.level for condition in table.conditions)
    columns: dict[str, list[Any]] = {}
    right: dict[str, float] = defaultdict(float)
    for place, condition in enumerate(table.conditions):
        outputs = measured_outputs(table, name, condition)
        is_one_row = len(table.conditions) > MOST_SETS or sets_at[condition.level] == 1
        title = level_name(table, condition.level) if is_one_row else str(condition)
        columns.setdefault(title, []).append(sample_signals(calibrator, outputs).to_columns())
        # Not for a method that may change predictions.
        known = table.values.get((UNCALIBRATED, "accuracy"))
        own = accuracy(softmax(outputs.logits), outputs.labels) if known is None else known[place]
        right[title] += len(outputs) * own
    found = []
    for title, parts in columns.items():
        estimate = SampleSignals.from_columns(np.concatenate(parts)).estimate(model, layers)
        found.append(EstimatedSet(title, estimate, right[title] / estimate.n_samples, len(parts)))
    return found


def estimates_section(sets: Sequence[EstimatedSet]) -> dict[str, Any] | None:
    """Return the charts and the summary of the section, or None without estimates."""
    if not sets:
        return None
    return {
        "sets": sets,
        "row": _row_names(sets)[0],
        "wide": _estimates_chart(sets),
        "narrow": _estimates_chart(sets, width=NARROW),
        "summary": summarise(sets),
    }


def summarise(sets: Sequence[EstimatedSet]) -> str:
    """Return the mean errors of the claims and the estimates as text."""
    claimed = float(np.mean([abs(one.estimate.plain_confidence - one.accuracy) for one in sets]))
    estimated = float(np.mean([abs(one.estimate.accuracy - one.accuracy) for one in sets]))
    inside = sum(one.estimate.low <= one.accuracy <= one.estimate.high for one in sets)
    where = "" if len(sets) == 1 else " on average"
    worst = max(sets, key=lambda one: abs(one.estimate.plain_confidence - one.accuracy))
    place = f"On {worst.name}" if len(sets) == 1 else f"In the worst case ({worst.name})"
    parts = [
        f"temperature scaling claims {percent(worst.estimate.plain_confidence)}",
        f"densecal estimates {percent(worst.estimate.accuracy)}",
        f"the true accuracy is {percent(worst.accuracy)}",
    ]
    return (
        f"Without labels, densecal's estimate of the accuracy is off by {100 * estimated:.1f} points{where}, the claim "
        f"of temperature scaling by {100 * claimed:.1f}. {place}, {listed(parts)}. The "
        f"interval contains the true accuracy on {inside} of {counted(len(sets), *_row_names(sets))}."
    )


def _row_names(sets: Sequence[EstimatedSet]) -> tuple[str, str]:
    """Return what one row is and what several are: many test sets are pooled."""
    if all(one.n_sets == 1 for one in sets):
        return "test set", "test sets"
    return "group of test sets", "groups of test sets"


def _estimates_chart(sets: Sequence[EstimatedSet], *, width: float = 980) -> Markup:
    """Draw one row per test set, with its three accuracies in columns next to it."""
    column = COLUMN if width > WIDE else COLUMN * 0.62
    left = name_margin((one.name for one in sets), width)
    margin = Margin(top=30, right=3 * column + 14, bottom=40, left=left)
    size = (width, ROW_HEIGHT * len(sets) + margin.top + margin.bottom)
    lowest = min(min(one.accuracy, one.estimate.low, one.estimate.plain_confidence) for one in sets)
    floor = max(0.0, int(10 * lowest) / 10)
    label = "Accuracy claimed by temperature scaling, estimated by densecal, and true: " + "; ".join(
        f"{one.name} {', '.join(percent(value) for value in _values(one).values())}" for one in sets
    )
    canvas = Canvas(size, label, xlim=(floor, 1.0), ylim=(0, len(sets)), margin=margin, kind="estimates")
    tenths = range(round(10 * floor), 11, 1 if width > WIDE or floor > 0.6 else 2)
    canvas.x_axis([tenth / 10 for tenth in tenths], "accuracy (%)", show=in_percent, grid=True)
    places = {name: canvas.right + column * (number + 0.6) + 10 for number, name in enumerate(MARKS)}
    for name, x in places.items():
        _draw_mark(canvas, (x, canvas.top - 16), name)
    for number, one in enumerate(sets):
        _draw_row(canvas, one, canvas.y(len(sets) - number - 0.5), places)
    return canvas.render()


def _values(one: EstimatedSet) -> dict[str, float]:
    return {"claim": one.estimate.plain_confidence, "estimate": one.estimate.accuracy, "truth": one.accuracy}


def _draw_row(canvas: Canvas, one: EstimatedSet, y: float, places: dict[str, float]) -> None:
    found, values = one.estimate, _values(one)
    interval = f"{percent(found.low, 1)} to {percent(found.high, 1)}"
    tip = (
        f"{one.name}: temperature scaling claims {percent(found.plain_confidence, 1)}, densecal estimates "
        f"{percent(found.accuracy, 1)} ({interval}), true {percent(one.accuracy, 1)}"
    )
    canvas.row_name(y + 4, one.name)
    canvas.pixel_line([(canvas.x(found.plain_confidence), y), (canvas.x(one.accuracy), y)], "claim-line")
    left, right = canvas.x(max(found.low, canvas.xlim[0])), canvas.x(found.high)
    canvas.pixel_box(left, y - 7, (right - left, 14), "estimate-range", tip=tip, rx=7)
    for name, value in values.items():
        _draw_mark(canvas, (canvas.x(value), y), name, tip=tip)
        css = "row-value strong" if name == "truth" else "row-value"
        canvas.text((places[name], y + 4), f"{100 * value:.0f}", css)


def _draw_mark(canvas: Canvas, at: tuple[float, float], name: str, *, tip: str = "") -> None:
    path = marker_path(MARKS[name], *at, 5.5 if name != "truth" else 4.5)
    canvas.add("path", f"{name}-mark", f'd="{path}"', tip=tip)
