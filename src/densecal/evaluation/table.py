"""EvaluationTable: metrics with intervals per condition, per severity and over all severities.

All methods, and all conditions of one size, share the bootstrap resamples, so a mean of replicates over conditions or a
difference between two methods is itself a bootstrap replicate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from densecal.arrays import to_numpy
from densecal.evaluation.conditions import Condition, samples_per_level
from densecal.evaluation.predictions import Predictions
from densecal.metrics import LEVEL, METRICS, OOD_METRICS, Interval, Metric, MetricState, group_weights
from densecal.metrics.proper_scores import mean_confidence
from densecal.outputs import Distances

if TYPE_CHECKING:
    import pandas as pd

Numbers: TypeAlias = Mapping[tuple[str, str], NDArray[np.float64]]
MeanOver: TypeAlias = Literal["severities", "conditions"]

FEWEST_SAMPLES = 100
"""With fewer samples there is no interval and no verdict: the accuracy then has a standard error of up to 5 points."""
MAX_LISTED_SETS = 8
"""The representation of a table lists at most this many test sets; above, it shows only their number."""

MEAN_CONFIDENCE = Metric("mean_confidence", "Confidence", mean_confidence, "mean of the top-1 confidence")
KNOWN_METRICS: Mapping[str, Metric] = {**METRICS, MEAN_CONFIDENCE.name: MEAN_CONFIDENCE}


@dataclass(frozen=True, eq=False)
class EvaluationTable:
    """The result of `evaluate_conditions`.

    Attributes
    ----------
    methods : tuple of str
        Names of the methods; uncalibrated is the first.
    conditions : tuple of Condition
        The labelled conditions, in the order of their severity; natural shifts are the last.
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
    states : mapping of (method, str(condition)) to MetricState
        For conditions of which the table has only a random sample of the predictions and distances: all samples.
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
    states: Mapping[tuple[str, str], MetricState] = field(default_factory=dict, repr=False)

    def __repr__(self) -> str:
        samples = sum(condition.n_samples for condition in self.conditions)
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
        """Whether every mean in the table has an interval."""
        return bool(self.replicates) and not self.too_small

    @property
    def severities(self) -> tuple[int, ...]:
        """The severities of the conditions that are not natural shifts, ascending."""
        return tuple(sorted({condition.severity for condition in self.conditions if not condition.natural}))

    @property
    def natural_shifts(self) -> tuple[str, ...]:
        """The names of the natural shifts."""
        return tuple(condition.name for condition in self.conditions if condition.natural)

    @property
    def levels(self) -> tuple[int | str, ...]:
        """The severities, then the names of the natural shifts."""
        return (*self.severities, *self.natural_shifts)

    @property
    def too_small(self) -> dict[int | str, int]:
        """The number of samples of each level that has fewer than 100, too few for an interval or a verdict."""
        return {level: size for level, size in samples_per_level(self.conditions).items() if size < FEWEST_SAMPLES}

    def estimate(
        self,
        method: str,
        metric: str = "ece",
        severity: int | str | None = None,
        *,
        mean_over: MeanOver = "severities",
    ) -> Interval:
        """Return the mean over the conditions of a severity; its interval is NaN for fewer than 100 samples.

        Parameters
        ----------
        method, metric : str
            A method and a metric of the table.
        severity : int or str, optional
            A severity, or the name of a natural shift; by default all severities, without natural shifts.
        mean_over : {"severities", "conditions"}
            What is weighted equally.
        """
        return self._interval(method, metric, self._weights(severity, mean_over))

    def difference(
        self,
        method: str,
        reference: str,
        metric: str = "ece",
        severity: int | str | None = None,
        *,
        mean_over: MeanOver = "severities",
    ) -> Interval:
        """Return the paired difference method - reference, which is significant if its interval excludes zero."""
        weights = self._weights(severity, mean_over)
        value = self._values(method, metric) @ weights - self._values(reference, metric) @ weights
        drawn = self._drawn(method, metric, weights) - self._drawn(reference, metric, weights)
        return Interval.around(float(value), drawn, self.level)

    def ood_estimate(self, method: str, condition: str, metric: str = "auroc") -> Interval:
        """Return a metric of out-of-domain detection for one out-of-domain condition."""
        names = [one.name for one in self.out_of_domain]
        if condition not in names:
            raise ValueError(f"condition must be one of {names}, got {condition!r}.")
        return self._interval(method, metric, np.eye(len(names))[names.index(condition)])

    def rows(self) -> pd.DataFrame:
        """Return the tidy table: one row per method, condition and metric. A natural shift has no severity (NaN)."""
        return self._tidy(self.metrics, self.conditions)

    def ood_rows(self) -> pd.DataFrame:
        """Return the tidy table of out-of-domain detection: one row per method, condition and metric."""
        return self._tidy(self.ood_metrics, self.out_of_domain).drop(columns="severity")

    def by_severity(self, metric: str = "ece") -> pd.DataFrame:
        """Return a table of method, severity, value, low and high: means over the conditions of each severity."""
        return self._by_level(metric, self.severities, "severity")

    def overall(self, metric: str = "ece") -> pd.DataFrame:
        """Return a table of method, value, low and high: means over severities, including the in-domain severity 0."""
        return self._by_level(metric, (None,), "severity").drop(columns="severity")

    def by_natural_shift(self, metric: str = "ece") -> pd.DataFrame:
        """Return a table of method, condition, value, low and high: one row per method and natural shift."""
        return self._by_level(metric, self.natural_shifts, "condition")

    def pooled(self, method: str, severity: int | str) -> Predictions:
        """Return confidence and correctness of the samples of a severity or a natural shift."""
        parts = [self.predictions[method, str(c)] for c in self.conditions if c.level == severity]
        confidence, correct = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        return Predictions(confidence, correct)

    def join(self, other: EvaluationTable) -> EvaluationTable:
        """Return a table with the methods of both tables, which must share samples and draws.

        A method that is in both tables, such as ``uncalibrated``, must have the same values in both.
        """
        theirs = other._comparable()
        for what, value in self._comparable().items():
            if theirs.get(what, value) != value:
                known = "" if isinstance(value, bytes) else f": {value} and {theirs[what]}"
                hint = "Evaluate both alike, and other calibrators under other names."
                raise ValueError(f"The tables differ in the {what}{known}. {hint}")
        shared = ("values", "replicates", "predictions", "own_metrics", "distances", "method_names", "states")
        joined: dict[str, Any] = {name: {**getattr(self, name), **getattr(other, name)} for name in shared}
        return replace(self, methods=tuple(dict.fromkeys([*self.methods, *other.methods])), **joined)

    def _comparable(self) -> dict[str, object]:
        """Return by name what must be equal in two tables, as far as both have it; arrays as bytes."""
        both = [*self.conditions, *self.out_of_domain]
        found: dict[str, object] = {"conditions": [str(one) for one in both], "level": self.level, "seed": self.seed}
        for one in both:
            labels = () if one.loaded.labels is None else to_numpy(one.loaded.labels)
            found[f"samples of {str(one)!r}"] = np.append([one.n_samples, len(one.loaded)], labels).tobytes()
        for (method, metric), values in self.values.items():
            drawn = self.replicates.get((method, metric), np.empty((1, 0)))
            found |= {f"n_resamples of {metric}": drawn.shape[1], f"metric {metric}": self.own_metrics.get(metric)}
            found[f"{metric} of {method!r}"] = values.tobytes()
        for (method, condition), predictions in self.predictions.items():
            found[f"confidence of {method!r} on {condition}"] = predictions.confidence.tobytes()
        return found

    def _by_level(self, metric: str, levels: Sequence[int | str | None], column: str) -> pd.DataFrame:
        import pandas as pd

        rows = [
            (method, level, *astuple(self.estimate(method, metric, level))[:3])
            for method in self.methods
            for level in levels
        ]
        return pd.DataFrame(rows, columns=["method", column, "value", "low", "high"])

    def _weights(self, severity: int | str | None, mean_over: MeanOver) -> NDArray[np.float64]:
        """Return the weight of each condition in the mean of a severity, or in the mean over all severities."""
        if severity is None:
            graded = [condition.severity for condition in self.conditions if not condition.natural]
            found = group_weights(graded if mean_over == "severities" else range(len(graded)))
            return np.append(found, np.zeros(len(self.natural_shifts)))
        if severity not in self.levels:
            raise ValueError(f"severity must be one of {list(self.levels)}, got {severity!r}.")
        own = np.array([condition.level == severity for condition in self.conditions])
        return np.asarray(own / own.sum())

    def _drawn(self, method: str, metric: str, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the replicates of a weighted mean over conditions; none if one of its levels is too small."""
        outside = metric in OOD_METRICS
        conditions = np.array(self.out_of_domain if outside else self.conditions, dtype=object)[weights > 0]
        if min(samples_per_level(conditions).values()) < FEWEST_SAMPLES or (outside and 0 in self.too_small):
            return np.empty(0)
        return np.asarray(weights @ self.replicates.get((method, metric), np.empty((len(weights), 0))))

    def _values(self, method: str, metric: str) -> NDArray[np.float64]:
        if (method, metric) not in self.values:
            raise ValueError(
                f"The table has no {metric!r} of {method!r}. Its methods are {list(self.methods)} and its metrics are "
                f"{[*self.metrics, *self.ood_metrics]}."
            )
        return self.values[method, metric]

    def _interval(self, method: str, metric: str, weights: NDArray[np.float64]) -> Interval:
        value = float(self._values(method, metric) @ weights)
        found = Interval.around(value, self._drawn(method, metric, weights), self.level)
        return found.within(0.0, {**KNOWN_METRICS, **self.own_metrics}[metric].largest)

    def _tidy(self, metrics: tuple[str, ...], conditions: tuple[Condition, ...]) -> pd.DataFrame:
        import pandas as pd

        heads = [(one.name, None if one.natural else one.severity, one.n_samples) for one in conditions]
        rows = [
            (method, *head, metric, *astuple(self._interval(method, metric, weights))[:3])
            for method in self.methods
            for head, weights in zip(heads, np.eye(len(heads)), strict=True)
            for metric in metrics
            if (method, metric) in self.values
        ]
        columns = ["method", "condition", "severity", "n_samples", "metric", "value", "low", "high"]
        return pd.DataFrame(rows, columns=columns)
