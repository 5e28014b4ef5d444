"""MethodResult: how honest one method was on every test set, with what is needed for intervals of any mean."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from densecal.io.storage import whole_file
from densecal.metrics import METRICS, Interval

if TYPE_CHECKING:
    import pandas as pd

Over = Literal["all", "mean"] | int
"""What to average: ``"all"`` weighs the six severities alike, ``"mean"`` every condition, a number is one severity."""

LEVEL = 0.95
CLASSWISE_OF_PAPER = "classwise_ece_paper"
"""Class-wise ECE as the paper's table has it: 15 edges, so 14 bins, summed over the classes."""


@dataclass(frozen=True, eq=False)
class MethodResult:
    """One method on every condition of one classifier.

    Attributes
    ----------
    classifier, method : str
    conditions : tuple of str
        Names of the test sets, by severity.
    severities : array of int, shape (conditions,)
    values, lows, highs : mapping of measure to array of shape (conditions,)
        The measures and their bootstrap intervals.
    replicates : mapping of measure to array of shape (distinct severities, resamples)
        Severity means in every resample; the same draws for every method, so differences are paired.
    ood : mapping of set to mapping of measure to array of shape (1 + resamples,)
        Out-of-domain measures: the value, then its resamples.
    metadata : mapping of str to anything JSON holds
        Fit seconds, weights and the like.
    """

    classifier: str
    method: str
    conditions: tuple[str, ...]
    severities: Any
    values: Mapping[str, Any]
    lows: Mapping[str, Any]
    highs: Mapping[str, Any]
    replicates: Mapping[str, Any]
    ood: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @property
    def measures(self) -> tuple[str, ...]:
        """The measures' names."""
        return tuple(self.values)

    @property
    def levels(self) -> Any:
        """The distinct severities, ascending."""
        return np.unique(self.severities)

    def estimate(self, measure: str = "ece", over: Over = "all") -> Interval:
        """Return a mean over conditions with its interval."""
        value, drawn = self._mean(measure, over)
        return interval_of(value, drawn, measure)

    def difference(self, reference: MethodResult, measure: str = "ece", over: Over = "all") -> Interval:
        """Return the paired difference to another method on the same conditions."""
        if self.conditions != reference.conditions:
            raise ValueError(f"{self.method} and {reference.method} were judged on different conditions.")
        (value, drawn), (other, other_drawn) = self._mean(measure, over), reference._mean(measure, over)
        return interval_of(value - other, drawn - other_drawn)

    def ood_estimate(self, name: str, measure: str) -> Interval:
        """Return an out-of-domain measure with its interval."""
        drawn = self.ood[name][measure]
        return interval_of(float(drawn[0]), drawn[1:], measure)

    def rows(self) -> pd.DataFrame:
        """Return the tidy table: one row a condition and measure."""
        import pandas as pd

        parts = [
            pd.DataFrame(
                {
                    "classifier": self.classifier,
                    "method": self.method,
                    "condition": self.conditions,
                    "severity": self.severities,
                    "measure": measure,
                    "value": self.values[measure],
                    "low": self.lows[measure],
                    "high": self.highs[measure],
                }
            )
            for measure in self.measures
        ]
        return pd.concat(parts, ignore_index=True)

    def by_severity(self, measure: str = "ece") -> pd.DataFrame:
        """Return method, severity, value, low, high, as `densecal.plots.severity_curves` takes it."""
        import pandas as pd

        found = [(int(level), self.estimate(measure, int(level))) for level in self.levels]
        rows = [(self.method, level, each.estimate, each.low, each.high) for level, each in found]
        return pd.DataFrame(rows, columns=["method", "severity", "value", "low", "high"])

    def _mean(self, measure: str, over: Over) -> tuple[float, Any]:
        if measure not in self.values:
            raise ValueError(f"{self.method} was not judged by {measure!r}, only by {', '.join(self.measures)}.")
        counts = np.array([(self.severities == level).sum() for level in self.levels])
        if over == "all":
            weights = np.full(len(counts), 1 / len(counts))
        elif over == "mean":
            weights = counts / counts.sum()
        else:
            weights = (self.levels == over).astype(float)
            if not weights.any():
                raise ValueError(f"There is no condition of severity {over}, only of {self.levels.tolist()}.")
        means = np.array([self.values[measure][self.severities == level].mean() for level in self.levels])
        return float(weights @ means), weights @ self.replicates[measure]

    def save(self, path: str | Path) -> None:
        """Write the result to one .npz file."""
        arrays: dict[str, Any] = {"severities": self.severities}
        for kind in ("values", "lows", "highs", "replicates"):
            stored = np.float32 if kind == "replicates" else np.float64
            arrays |= {f"{kind}/{name}": array.astype(stored) for name, array in getattr(self, kind).items()}
        for name, measures in self.ood.items():
            arrays |= {f"ood/{name}/{measure}": array for measure, array in measures.items()}
        head = {key: getattr(self, key) for key in ("classifier", "method", "conditions", "metadata")}
        arrays["head"] = np.frombuffer(json.dumps(head).encode(), np.uint8)
        with whole_file(path) as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, **arrays)

    @classmethod
    def load(cls, path: str | Path) -> MethodResult:
        """Read what `save` wrote."""
        with np.load(path, allow_pickle=False) as stored:
            arrays = dict(stored)
        head = json.loads(arrays.pop("head").tobytes())
        kinds: dict[str, dict[str, Any]] = {"values": {}, "lows": {}, "highs": {}, "replicates": {}}
        ood: dict[str, dict[str, Any]] = {}
        severities = arrays.pop("severities")
        for key, array in arrays.items():
            kind, _, name = key.partition("/")
            if kind == "ood":
                name, _, measure = name.rpartition("/")
                ood.setdefault(name, {})[measure] = array
            else:
                kinds[kind][name] = array
        conditions = tuple(head["conditions"])
        return cls(
            head["classifier"], head["method"], conditions, severities, **kinds, ood=ood, metadata=head["metadata"]
        )


def interval_of(value: float, drawn: Any, measure: str | None = None) -> Interval:
    """Return the interval of a measure, which ends where the measure's range does, or of a difference (no measure).

    Examples
    --------
    >>> interval_of(0.01, np.array([0.02, 0.03]), "ece").low
    0.0
    """
    found = Interval.around(value, drawn, LEVEL)
    return found if measure is None else found.within(0.0, _largest(measure))


def _largest(measure: str) -> float:
    return METRICS["classwise_ece_sum" if measure == CLASSWISE_OF_PAPER else measure].largest
