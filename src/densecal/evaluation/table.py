"""EvaluationTable: metrics with intervals per condition, per severity and over all severities.

All methods, and all conditions of one size, share the bootstrap resamples, so a mean of replicates over conditions or a
difference between two methods is itself a bootstrap replicate.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from densecal.arrays import to_numpy
from densecal.evaluation.conditions import Condition
from densecal.metrics import LEVEL, METRICS, OOD_METRICS, Interval, Metric, group_weights
from densecal.metrics.proper_scores import mean_confidence
from densecal.outputs import Distances, Outputs

if TYPE_CHECKING:
    import pandas as pd

Numbers: TypeAlias = Mapping[tuple[str, str], NDArray[np.float64]]
MeanOver: TypeAlias = Literal["severities", "conditions"]

MAX_LISTED_SETS = 8
"""The representation of a table lists at most this many test sets; above, it shows only their number."""

MEAN_CONFIDENCE = Metric("mean_confidence", "Confidence", mean_confidence, "mean of the top-1 confidence")
KNOWN_METRICS: Mapping[str, Metric] = {**METRICS, MEAN_CONFIDENCE.name: MEAN_CONFIDENCE}


class Predictions(NamedTuple):
    """One method's top-1 confidence on one condition, and whether each prediction is correct (None without labels).

    Examples
    --------
    >>> Predictions(np.array([0.9, 0.6]), np.array([True, False])).confidence
    array([0.9, 0.6])
    """

    confidence: NDArray[np.float64]
    correct: NDArray[np.bool_] | None


@dataclass(frozen=True, eq=False)
class EvaluationTable:
    """The result of `evaluate_conditions`.

    Attributes
    ----------
    methods : tuple of str
        Names of the methods; uncalibrated is the first.
    conditions : tuple of Condition
        The labelled conditions, in the order of their severity.
    values : mapping of (method, metric) to array of shape (n_conditions,)
        The shape is (n_out_of_domain,) for metrics of out-of-domain detection.
    replicates : mapping of (method, metric) to array of shape (n_conditions, n_resamples)
        The values in each bootstrap resample; absent for metrics that were not resampled.
    predictions : mapping of (method, str(condition)) to Predictions
        Confidence and correctness of each sample, also for out-of-domain conditions.
    out_of_domain : tuple of Condition
        The out-of-domain conditions.
    level, seed
        Nominal coverage of the intervals, and the seed of the draws.
    own_metrics : mapping of name to Metric
        User-defined metrics.
    distances : mapping of (method, str(condition)) to Distances
        The distances that the evaluation measured, for methods that use them.
    method_names : mapping of method to str
        ``Calibrator.method_name`` of each method, such as ``dac+ets``. A method without one is named by its key.

    Examples
    --------
    >>> from densecal import Outputs
    >>> from densecal.evaluation import evaluate_conditions
    >>> clean, foggy = Outputs([[2.0, 0.0]] * 8, labels=[0] * 8), Outputs([[2.0, 0.0]] * 8, labels=[0, 1] * 4)
    >>> table = evaluate_conditions({}, [Condition("clean", clean), Condition("fog", foggy, severity=3)])
    >>> table.by_severity()[["severity", "value"]].round(3).values.tolist()
    [[0.0, 0.119], [3.0, 0.381]]
    >>> table
    EvaluationTable
      methods: uncalibrated
      test sets: clean; fog, severity 3
      severities 0, 3; 16 samples in all
      ece over all severities: uncalibrated 0.2500
    """

    methods: tuple[str, ...]
    conditions: tuple[Condition, ...]
    values: Numbers
    replicates: Numbers
    predictions: Mapping[tuple[str, str], Predictions] = field(repr=False)
    out_of_domain: tuple[Condition, ...] = ()
    level: float = LEVEL
    seed: int = 0
    own_metrics: Mapping[str, Metric] = field(default_factory=dict)
    distances: Mapping[tuple[str, str], Distances] = field(default_factory=dict)
    method_names: Mapping[str, str] = field(default_factory=dict)

    def __repr__(self) -> str:
        samples = sum(len(condition.outputs) for condition in self.conditions)
        names = "; ".join(str(condition) for condition in self.conditions)
        few = len(self.conditions) <= MAX_LISTED_SETS
        lines = [
            "EvaluationTable",
            f"methods: {', '.join(self.methods)}",
            f"test sets: {names}" if few else f"{len(self.conditions)} test sets",
            f"severities {', '.join(map(str, self.severities))}; {samples} samples in all",
        ]
        if "ece" in self.metrics:
            errors = ", ".join(f"{method} {self.estimate(method).estimate:.4f}" for method in self.methods)
            lines.append(f"ece over all severities: {errors}")
        return "\n  ".join(lines)

    @property
    def metrics(self) -> tuple[str, ...]:
        """Names of the metrics of labelled conditions."""
        return tuple(dict.fromkeys(metric for _, metric in self.values if metric not in OOD_METRICS))

    @property
    def ood_metrics(self) -> tuple[str, ...]:
        """Names of the metrics of out-of-domain detection."""
        return tuple(dict.fromkeys(metric for _, metric in self.values if metric in OOD_METRICS))

    @property
    def has_intervals(self) -> bool:
        """Whether the table has intervals."""
        return bool(self.replicates)

    @cached_property
    def severities(self) -> tuple[int, ...]:
        """The severities of the conditions, ascending."""
        return tuple(sorted({condition.severity for condition in self.conditions}))

    def estimate(
        self, method: str, metric: str = "ece", severity: int | None = None, *, mean_over: MeanOver = "severities"
    ) -> Interval:
        """Return the mean over the conditions of a severity or, by default, over all severities ("ALL").

        ``mean_over="conditions"`` weights all conditions equally instead of all severities.
        """
        return self._interval(method, metric, self._weights(severity, mean_over))

    def difference(
        self,
        method: str,
        reference: str,
        metric: str = "ece",
        severity: int | None = None,
        *,
        mean_over: MeanOver = "severities",
    ) -> Interval:
        """Return the paired difference method - reference. It is significant if the interval excludes zero."""
        weights = self._weights(severity, mean_over)
        value = self._values(method, metric) @ weights - self._values(reference, metric) @ weights
        ours, theirs = (
            self.replicates.get((name, metric), np.empty((len(weights), 0))) for name in (method, reference)
        )
        return Interval.around(float(value), weights @ ours - weights @ theirs, self.level)

    def ood_estimate(self, method: str, condition: str, metric: str = "auroc") -> Interval:
        """Return a metric of out-of-domain detection for one out-of-domain condition."""
        names = [one.name for one in self.out_of_domain]
        if condition not in names:
            raise ValueError(f"condition must be one of {names}, got {condition!r}.")
        return self._interval(method, metric, np.eye(len(names))[names.index(condition)])

    def rows(self) -> pd.DataFrame:
        """Return the tidy table: one row per method, condition and metric."""
        return self._tidy(self.metrics, self.conditions)

    def ood_rows(self) -> pd.DataFrame:
        """Return the tidy table of out-of-domain detection: one row per method, condition and metric."""
        return self._tidy(self.ood_metrics, self.out_of_domain).drop(columns="severity")

    def by_severity(self, metric: str = "ece") -> pd.DataFrame:
        """Return a table of method, severity, value, low and high: means over the conditions of each severity."""
        import pandas as pd

        rows = [
            (method, severity, *_ends(self.estimate(method, metric, severity)))
            for method in self.methods
            for severity in self.severities
        ]
        return pd.DataFrame(rows, columns=["method", "severity", "value", "low", "high"])

    def overall(self, metric: str = "ece") -> pd.DataFrame:
        """Return a table of method, value, low and high: means over severities, including the in-domain severity 0."""
        import pandas as pd

        rows = [(method, *_ends(self.estimate(method, metric))) for method in self.methods]
        return pd.DataFrame(rows, columns=["method", "value", "low", "high"])

    def pooled(self, method: str, severity: int) -> Predictions:
        """Return confidence and correctness of all samples of a severity."""
        parts = [self.predictions[method, str(c)] for c in self.conditions if c.severity == severity]
        confidence, correct = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return Predictions(confidence, correct)

    def join(self, other: EvaluationTable) -> EvaluationTable:
        """Return a table with the methods of both tables, which must share samples and draws.

        A method that is in both tables, such as ``uncalibrated``, must have the same values in both.
        """
        self._check_paired(other)
        return replace(
            self,
            methods=tuple(dict.fromkeys([*self.methods, *other.methods])),
            values={**self.values, **other.values},
            replicates={**self.replicates, **other.replicates},
            predictions={**self.predictions, **other.predictions},
            own_metrics={**self.own_metrics, **other.own_metrics},
            distances={**self.distances, **other.distances},
            method_names={**self.method_names, **other.method_names},
        )

    def _check_paired(self, other: EvaluationTable) -> None:
        """Raise where differences between methods of the two tables would not be paired."""
        ours, theirs = ([*table.conditions, *table.out_of_domain] for table in (self, other))
        if [str(one) for one in ours] != [str(one) for one in theirs]:
            raise ValueError("The tables are of different conditions. Evaluate both on the same conditions.")
        for one, same in zip(ours, theirs, strict=True):
            if not _same_samples(one.outputs, same.outputs):
                raise ValueError(f"The tables have different samples of {str(one)!r}. Evaluate both on the same ones.")
        settings = other._settings()
        for name, value in self._settings().items():
            if name in settings and settings[name] != value:
                raise ValueError(f"The tables differ in {name}: {value} and {settings[name]}. Evaluate both alike.")
        numbers = other._numbers()
        for (method, what), values in self._numbers().items():
            if not np.array_equal(values, numbers.get((method, what), values), equal_nan=True):
                raise ValueError(
                    f"Both tables have a method {method!r}, but its {what} differs. Evaluate one under another name."
                )

    def _numbers(self) -> dict[tuple[str, str], NDArray[np.float64]]:
        """Return the values of each method, and its confidences in each condition."""
        confidences = {(name, f"confidence on {at}"): one.confidence for (name, at), one in self.predictions.items()}
        return {**self.values, **confidences}

    def _settings(self) -> dict[str, object]:
        """Return how the table was evaluated, by the name of the setting."""
        found: dict[str, object] = {"level": self.level, "seed": self.seed}
        for method, metric in self.values:
            drawn = self.replicates.get((method, metric), np.empty((1, 0)))
            found |= {f"n_resamples of {metric}": drawn.shape[1], f"metric {metric}": self.own_metrics.get(metric)}
        return found

    def _weights(self, severity: int | None, mean_over: MeanOver) -> NDArray[np.float64]:
        """Return the weight of each condition in the mean of a severity, or in the mean over all."""
        own = np.array([condition.severity for condition in self.conditions])
        if severity is None:
            return group_weights(own.tolist() if mean_over == "severities" else range(len(own)))
        if severity not in self.severities:
            raise ValueError(f"severity must be one of {list(self.severities)}, got {severity}.")
        return np.asarray((own == severity) / np.sum(own == severity))

    def _values(self, method: str, metric: str) -> NDArray[np.float64]:
        if (method, metric) not in self.values:
            raise ValueError(
                f"The table has no {metric!r} of {method!r}. Its methods are {list(self.methods)} and its metrics are "
                f"{[*self.metrics, *self.ood_metrics]}."
            )
        return self.values[method, metric]

    def _interval(self, method: str, metric: str, weights: NDArray[np.float64]) -> Interval:
        value = float(self._values(method, metric) @ weights)
        drawn = self.replicates.get((method, metric), np.empty((len(weights), 0)))
        found = Interval.around(value, weights @ drawn, self.level)
        return found.within(0.0, {**KNOWN_METRICS, **self.own_metrics}[metric].largest)

    def _tidy(self, metrics: tuple[str, ...], conditions: tuple[Condition, ...]) -> pd.DataFrame:
        import pandas as pd

        rows = [
            (method, one.name, one.severity, len(one.outputs), metric, *_ends(self._interval(method, metric, weights)))
            for method in self.methods
            for one, weights in zip(conditions, np.eye(len(conditions)), strict=True)
            for metric in metrics
            if (method, metric) in self.values
        ]
        columns = ["method", "condition", "severity", "n_samples", "metric", "value", "low", "high"]
        return pd.DataFrame(rows, columns=columns)


def _same_samples(one: Outputs, other: Outputs) -> bool:
    ours, theirs = ([] if outputs.labels is None else to_numpy(outputs.labels) for outputs in (one, other))
    return len(one) == len(other) and np.array_equal(ours, theirs)


def _ends(interval: Interval) -> tuple[float, float, float]:
    return interval.estimate, interval.low, interval.high
