"""EvaluationTable: every measure with its interval, severity means and the overall mean.

One bootstrap serves the whole grid: all calibrators and conditions of one size share their draws, so a mean over
conditions, or a difference of two calibrators, is itself resampled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from densecal.evaluation.conditions import Condition
from densecal.metrics import METRICS, Interval, group_weights

if TYPE_CHECKING:
    import pandas as pd

SETS_NAMED = 8
"""Printed, a table names its test sets up to this many, and counts more."""


class Judged(NamedTuple):
    """One calibrator's top-1 confidence on one condition, and whether each answer was right (None: no labels).

    Examples
    --------
    >>> Judged(np.array([0.9, 0.6]), np.array([True, False])).confidence
    array([0.9, 0.6])
    """

    confidence: Any
    correct: Any


@dataclass(frozen=True, eq=False)
class EvaluationTable:
    """What `evaluate_conditions` found.

    Attributes
    ----------
    methods : tuple of str
        The calibrators' names, uncalibrated first.
    conditions : tuple of Condition
        The labelled conditions, in the order of their severity.
    values : mapping of (method, measure) to array of shape (conditions,)
        NaN where a method does not have the measure.
    replicates : mapping of (method, measure) to array of shape (conditions, resamples)
        The same in every bootstrap resample; absent for measures that were not resampled.
    judged : mapping of (method, str(condition)) to Judged
        Every sample's confidence and correctness, out-of-domain conditions included.
    level : float
        What share of the resamples an interval covers.

    Examples
    --------
    >>> from densecal import Outputs
    >>> from densecal.evaluation import evaluate_conditions
    >>> clean, foggy = Outputs([[2.0, 0.0]] * 8, labels=[0] * 8), Outputs([[2.0, 0.0]] * 8, labels=[0, 1] * 4)
    >>> table = evaluate_conditions({}, [Condition("clean", clean), Condition("fog", foggy, severity=3)])
    >>> table.by_severity()[["severity", "value"]].round(3).values.tolist()
    [[0.0, 0.119], [3.0, 0.381]]
    >>> round(table.estimate("uncalibrated").estimate, 3)
    0.25
    >>> table
    EvaluationTable
      methods: uncalibrated
      test sets: clean; fog, severity 3
      severities 0, 3; 16 samples in all
      ece over all severities: uncalibrated 0.2500
    """

    methods: tuple[str, ...]
    conditions: tuple[Condition, ...]
    values: Mapping[tuple[str, str], Any]
    replicates: Mapping[tuple[str, str], Any]
    judged: Mapping[tuple[str, str], Judged] = field(repr=False)
    out_of_domain: tuple[Condition, ...] = ()
    level: float = 0.95

    def __repr__(self) -> str:
        samples = sum(len(condition.outputs) for condition in self.conditions)
        names = "; ".join(map(str, self.conditions))
        few = len(self.conditions) <= SETS_NAMED
        lines = [
            "EvaluationTable",
            f"methods: {', '.join(self.methods)}",
            f"test sets: {names}" if few else f"{len(self.conditions)} test sets",
            f"severities {', '.join(map(str, self.severities))}; {samples} samples in all",
        ]
        if "ece" in self.measures:
            errors = ", ".join(f"{method} {self.estimate(method).estimate:.4f}" for method in self.methods)
            lines.append(f"ece over all severities: {errors}")
        return "\n  ".join(lines)

    @property
    def measures(self) -> tuple[str, ...]:
        """The measures' names."""
        return tuple(dict.fromkeys(measure for _, measure in self.values))

    @property
    def has_intervals(self) -> bool:
        """Whether there are intervals: not without resamples."""
        return bool(self.replicates)

    @cached_property
    def severities(self) -> tuple[int, ...]:
        """The severities of the conditions, ascending."""
        return tuple(sorted({condition.severity for condition in self.conditions}))

    def estimate(self, method: str, measure: str = "ece", severity: int | None = None) -> Interval:
        """Return a severity's mean over its conditions or, without one, the mean over all severities ("ALL")."""
        weights = self._weights(severity)
        value, drawn = self._value(method, measure, weights), self._resampled(method, measure, weights)
        return _within_range(self._interval(value, drawn), measure)

    def difference(self, method: str, reference: str, measure: str = "ece", severity: int | None = None) -> Interval:
        """Return the paired difference method - reference; an interval that excludes zero is a real difference."""
        weights = self._weights(severity)
        value = self._value(method, measure, weights) - self._value(reference, measure, weights)
        ours = self._resampled(method, measure, weights)
        theirs = self._resampled(reference, measure, weights)
        return self._interval(value, None if ours is None or theirs is None else ours - theirs)

    def rows(self) -> pd.DataFrame:
        """Return the tidy table: one row a method, condition and measure."""
        import pandas as pd

        rows = []
        for method in self.methods:
            for place, condition in enumerate(self.conditions):
                for measure in self.measures:
                    value = float(self.values[method, measure][place])
                    drawn = self.replicates.get((method, measure))
                    found = _within_range(self._interval(value, None if drawn is None else drawn[place]), measure)
                    head = (method, condition.name, condition.severity, len(condition.outputs), measure)
                    rows.append((*head, found.estimate, found.low, found.high))
        columns = ["method", "condition", "severity", "samples", "measure", "value", "low", "high"]
        return pd.DataFrame(rows, columns=columns)

    def by_severity(self, measure: str = "ece") -> pd.DataFrame:
        """Return method, severity, value, low, high: means over the conditions of each severity."""
        import pandas as pd

        rows = [
            (method, severity, *_ends(self.estimate(method, measure, severity)))
            for method in self.methods
            for severity in self.severities
        ]
        return pd.DataFrame(rows, columns=["method", "severity", "value", "low", "high"])

    def overall(self, measure: str = "ece") -> pd.DataFrame:
        """Return method, value, low, high: each severity weighs the same, in-domain being one of them."""
        import pandas as pd

        rows = [(method, *_ends(self.estimate(method, measure))) for method in self.methods]
        return pd.DataFrame(rows, columns=["method", "value", "low", "high"])

    def pooled(self, method: str, severity: int) -> Judged:
        """Return confidence and correctness of all samples of a severity."""
        parts = [self.judged[method, str(c)] for c in self.conditions if c.severity == severity]
        return Judged(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))

    def _weights(self, severity: int | None) -> Any:
        """Return each condition's weight in a severity's mean, or in the mean over severities."""
        own = np.array([condition.severity for condition in self.conditions])
        wanted = self.severities if severity is None else (severity,)
        if severity is not None and severity not in self.severities:
            raise ValueError(f"There is no condition of severity {severity}, only of {list(self.severities)}.")
        weights = np.zeros(len(own))
        chosen = np.isin(own, wanted)
        weights[chosen] = group_weights(own[chosen].tolist())
        return weights

    def _value(self, method: str, measure: str, weights: Any) -> float:
        if (method, measure) not in self.values:
            raise ValueError(
                f"The table has no {measure!r} of {method!r}: its methods are {list(self.methods)}, its measures "
                f"{list(self.measures)}."
            )
        return float(self.values[method, measure] @ weights)

    def _resampled(self, method: str, measure: str, weights: Any) -> Any | None:
        drawn = self.replicates.get((method, measure))
        return None if drawn is None else weights @ drawn

    def _interval(self, value: float, drawn: Any | None) -> Interval:
        return Interval.around(value, [] if drawn is None else drawn, self.level)


def _within_range(interval: Interval, measure: str) -> Interval:
    # Mean confidence is a share and no metric of its own.
    return interval.within(0.0, METRICS[measure].largest if measure in METRICS else 1.0)


def _ends(interval: Interval) -> tuple[float, float, float]:
    return interval.estimate, interval.low, interval.high
