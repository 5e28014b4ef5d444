"""Evaluate calibrators on conditions."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from densecal.arrays import Array, data_hash, to_numpy
from densecal.calibrators import ORACLE, UNCALIBRATED
from densecal.calibrators.base import Calibrator
from densecal.display import track
from densecal.errors import warn_user
from densecal.evaluation.conditions import Condition, chance_cautions
from densecal.evaluation.predictions import Mapper, Predictions, evaluate_stream, predict
from densecal.evaluation.table import KNOWN_METRICS, EvaluationTable
from densecal.io.atomic_files import listed
from densecal.metrics import LEVEL, METRICS, N_RESAMPLES, OOD_METRICS, Metric, MetricState, Resamples
from densecal.metrics.resampling import ood_replicates
from densecal.outputs import Distances, Outputs

DEFAULT_METRICS = ("ece", "accuracy", "mean_confidence", "brier", "nll")
"""The metrics that `evaluate_conditions` computes by default."""
FEWEST_RESAMPLES = 20
SAMPLE_SIZE = 50_000
"""The number of samples from which the intervals of a larger condition are computed: that of ImageNet's test set."""
MOST_COMPARED = 100_000
"""A condition of more samples is not compared with the data of the fit."""


def evaluate_conditions(
    calibrators: Mapping[str, Calibrator],
    conditions: Sequence[Condition],
    *,
    metrics: Sequence[str | Metric] = DEFAULT_METRICS,
    uncalibrated: bool = True,
    oracle: bool = False,
    n_resamples: int | Mapping[str, int] = N_RESAMPLES,
    level: float = LEVEL,
    seed: int = 0,
    sample_size: int = SAMPLE_SIZE,
    mapper: Mapper | None = None,
) -> EvaluationTable:
    """Evaluate every calibrator on every condition.

    Parameters
    ----------
    calibrators : mapping of name to fitted Calibrator
        A name such as ``"dac+ets"`` determines the style in plots. ``"uncalibrated"`` and ``"oracle"`` are reserved.
    conditions : sequence of Condition
        Test sets with different names or severities, at least one of them not under a natural shift. Out-of-domain sets
        get the metrics of out-of-domain detection, if requested.
    metrics : sequence of str or Metric
        Names in ``densecal.metrics.METRICS``, ``"mean_confidence"``, or user-defined metrics. A report requires
        ``"ece"``, ``"accuracy"`` and ``"mean_confidence"``.
    uncalibrated, oracle : bool
        Whether to add the uncalibrated softmax, and temperature scaling (squared error) fitted on the labels of each
        condition. The latter is a bound for methods with one temperature per condition.
    n_resamples : int or mapping of metric to int
        Number of bootstrap resamples: at least 20, or 0 for no intervals. Metrics not in a mapping use the default.
    level, seed
        Nominal coverage of the intervals, and the seed of the resamples.
    sample_size : int, default 50,000
        A larger condition is read in batches. Its metrics are those of all samples. Intervals (scaled to all samples),
        out-of-domain detection, user-defined metrics, the oracle, predictions and distances use a random sample.
    mapper : callable, optional
        A function like ``map`` for the files of such a condition: :func:`densecal.integrations.ray.map_tasks`.

    Examples
    --------
    >>> from densecal import Outputs, TemperatureScaling
    >>> from densecal.evaluation import Condition
    >>> val, test = (Outputs([[4.0, 0.0]] * size, labels=[0, 0, 0, 1] * (size // 4)) for size in (8, 4))
    >>> fitted = TemperatureScaling().fit(val)
    >>> table = evaluate_conditions({"ts": fitted}, [Condition("clean", test)])
    >>> table.by_severity()[["method", "value"]].round(3).values.tolist()
    [['uncalibrated', 0.232], ['ts', 0.0]]
    """
    _check_arguments(calibrators, conditions)
    labelled, outside = _split_conditions(conditions)
    grid = _Grid(find_metrics(metrics), n_resamples, level, seed)
    grid.check(labelled, outside)
    methods: dict[str, Calibrator | None] = {UNCALIBRATED: None} if uncalibrated else {}
    methods |= calibrators
    if oracle:
        methods[ORACLE] = None
    sampled = grid.evaluate(methods, [*labelled, *outside], sample_size, mapper)
    _warn_of_conditions(calibrators, labelled, sampled[: len(labelled)])
    table = grid.table(tuple(methods), sampled[: len(labelled)], sampled[len(labelled) :])
    return replace(table, method_names={name: one.method_name for name, one in calibrators.items()})


def _check_arguments(calibrators: object, conditions: object) -> None:
    if not isinstance(calibrators, Mapping) or not all(isinstance(one, Calibrator) for one in calibrators.values()):
        raise TypeError(
            f"calibrators must map names to fitted calibrators, such as {{'dac+ets': calibrator}}, got {calibrators!r}."
        )
    for name in calibrators:
        if name.strip().lower() in ("", UNCALIBRATED, ORACLE):
            raise ValueError(
                f"A calibrator cannot be named {name!r}: names must not be empty, {UNCALIBRATED!r} or {ORACLE!r}."
            )
    if not isinstance(conditions, Sequence) or not all(isinstance(one, Condition) for one in conditions):
        raise TypeError(
            "conditions must be a list of Condition, such as [Condition('clean', outputs), Condition('fog', outputs, "
            f"severity=3)], got {type(conditions).__name__}."
        )


def _warn_of_conditions(
    calibrators: Mapping[str, Calibrator], labelled: Sequence[Condition], sampled: Sequence[Condition]
) -> None:
    """Warn about conditions that a calibrator was fitted on, or on which the classifier is no better than chance.

    Conditions in files of which only a sample was read are not compared with the data of the fit.
    """
    # A stage of a chain was fitted with the chain and has no hashes of its own.
    hashes = {name: getattr(one, "data_hashes_", {}).get("validation") for name, one in calibrators.items()}
    for condition, sample in zip(labelled, sampled, strict=True) if any(hashes.values()) else ():
        outputs = condition.outputs if isinstance(condition.outputs, Outputs) else sample.loaded
        if len(outputs) == condition.n_samples <= MOST_COMPARED:
            found = data_hash([(outputs.logits, outputs.labels)])
            names = [name for name, one in hashes.items() if one == found]
            if names:
                warn_user(f"{condition}: {listed(names)} was fitted on these data. On new data the error is larger.")
    for caution in chance_cautions(sampled):
        warn_user(caution)


def _split_conditions(conditions: Sequence[Condition]) -> tuple[tuple[Condition, ...], tuple[Condition, ...]]:
    """Return the labelled conditions by severity, natural shifts last, and the out-of-domain ones."""
    repeated = [name for name, count in Counter(map(str, conditions)).items() if count > 1]
    if repeated:
        raise ValueError(f"conditions must differ in name or severity, got several named {repeated[0]!r}.")
    labelled = tuple(sorted((c for c in conditions if not c.out_of_domain), key=lambda c: (c.natural, c.severity)))
    if not labelled:
        raise ValueError("conditions must hold at least one labelled test set, got none.")
    if labelled[0].natural:
        raise ValueError("Natural shifts are compared with clean data: add a labelled test set that is not one.")
    return labelled, tuple(condition for condition in conditions if condition.out_of_domain)


class _Grid:
    """Values and replicates of every method and metric, filled condition by condition."""

    def __init__(
        self, metrics: Mapping[str, Metric], n_resamples: int | Mapping[str, int], level: float, seed: int
    ) -> None:
        self.metrics, self.level, self.seed = metrics, level, seed
        self.n_resamples = check_resamples(n_resamples, metrics)
        self.values: dict[tuple[str, str], list[float]] = defaultdict(list)
        self.replicates: dict[tuple[str, str], list[NDArray[np.float64]]] = defaultdict(list)
        self.predictions: dict[tuple[str, str], Predictions] = {}
        self.distances: dict[tuple[str, str], Distances] = {}
        self.states: dict[tuple[str, str], MetricState] = {}
        self._draws: dict[tuple[int, int], Resamples] = {}

    def check(self, labelled: Sequence[Condition], outside: Sequence[Condition]) -> None:
        """Raise if there is nothing to compare the out-of-domain conditions with."""
        if outside and set(self.metrics) & set(OOD_METRICS) and all(one.level != 0 for one in labelled):
            raise ValueError("Metrics of out-of-domain detection need in-domain data: add a condition of severity 0.")

    def evaluate(
        self,
        methods: Mapping[str, Calibrator | None],
        conditions: Sequence[Condition],
        sample_size: int,
        mapper: Mapper | None,
    ) -> list[Condition]:
        """Add the metrics of all methods on every condition, and return the conditions as they were sampled."""
        sampled, alone = list[Condition](), len(conditions) == 1
        classwise = any(name.startswith("classwise") for name in self.metrics)
        for condition in conditions if alone else track(conditions, "evaluating"):
            sample, states = evaluate_stream(
                methods, condition, sample_size, self.seed, classwise=classwise, progress=alone, mapper=mapper
            )
            self._add_condition(methods, sample, states)
            sampled.append(sample)
        return sampled

    def _add_condition(
        self, methods: Mapping[str, Calibrator | None], condition: Condition, states: Mapping[str, MetricState]
    ) -> None:
        """Add the metrics of all methods on a condition; the states have those of all samples if it has only some."""
        applied = {name: one for name, one in methods.items() if name != ORACLE or not condition.out_of_domain}
        for method, probabilities, confidence, distances in predict(applied, condition.loaded):
            if distances is not None:
                self.distances[method, str(condition)] = distances
            confidence = probabilities.max(axis=1) if confidence is None else confidence
            self._add(method, condition, probabilities, confidence, states.get(method))
            del probabilities

    def _add(
        self, method: str, condition: Condition, probabilities: Array, confidence: Array, state: MetricState | None
    ) -> None:
        labels = None if condition.outputs.labels is None else to_numpy(condition.outputs.labels)
        correct = None if labels is None else probabilities.argmax(axis=1) == labels
        self.predictions[method, str(condition)] = Predictions(confidence, correct)
        if condition.out_of_domain:
            return
        exact = {} if state is None else state.compute(kde="ece_kde" in self.metrics).as_dict()
        if state is not None:
            self.states[method, str(condition)] = state
        shrink = math.sqrt(len(confidence) / condition.n_samples)
        pairs = {"confidence": (confidence, correct), "distribution": (probabilities, labels)}
        for name, metric in self.metrics.items():
            if metric.needs in pairs:
                pair, key = pairs[metric.needs], (len(confidence), self.n_resamples[name])
                of_sample = metric(*pair)
                known = exact.get(name) if metric == KNOWN_METRICS.get(name) else None
                value = of_sample if known is None else known
                self.values[method, name].append(value)
                if key[1]:
                    draws = self._draws.setdefault(key, Resamples(*key, self.seed))
                    drawn = draws.replicates(metric, *pair)
                    # The spread of a mean falls with the square root of the number of samples.
                    self.replicates[method, name].append(value + (drawn - of_sample) * shrink)

    def table(
        self, methods: tuple[str, ...], labelled: Sequence[Condition], outside: Sequence[Condition]
    ) -> EvaluationTable:
        self._detect(methods, [str(one) for one in labelled if one.level == 0], [str(one) for one in outside])
        values = {key: np.array(found) for key, found in self.values.items()}
        replicates = {key: np.array(found) for key, found in self.replicates.items()}
        own = {name: metric for name, metric in self.metrics.items() if KNOWN_METRICS.get(name) != metric}
        return EvaluationTable(
            methods,
            tuple(labelled),
            values,
            replicates,
            self.predictions,
            tuple(outside),
            level=self.level,
            seed=self.seed,
            own_metrics=own,
            distances=self.distances,
            states=self.states,
        )

    def _detect(self, methods: Sequence[str], clean: Sequence[str], outside: Sequence[str]) -> None:
        """Add the metrics of out-of-domain detection, with the clean conditions as in-domain data."""
        metrics = {name: METRICS[name] for name in self.metrics if name in OOD_METRICS}
        most = max((self.n_resamples[name] for name in metrics), default=0)
        for method, condition in ((m, c) for m in methods for c in outside if metrics and (m, c) in self.predictions):
            inside = np.concatenate([self.predictions[method, name].confidence for name in clean])
            confidence = self.predictions[method, condition].confidence
            drawn = ood_replicates(inside, confidence, n_resamples=most, seed=self.seed)
            for name, metric in metrics.items():
                self.values[method, name].append(metric(inside, confidence))
                if self.n_resamples[name]:
                    self.replicates[method, name].append(drawn[name][: self.n_resamples[name]])


def check_resamples(n_resamples: int | Mapping[str, int], metrics: Iterable[str]) -> dict[str, int]:
    """Return the number of resamples of each metric; raise if it is too small for an interval."""
    given = n_resamples if isinstance(n_resamples, Mapping) else dict.fromkeys(metrics, n_resamples)
    counts = {metric: given.get(metric, N_RESAMPLES) for metric in metrics}
    if unknown := [metric for metric in given if metric not in counts]:
        raise ValueError(f"n_resamples names {unknown}, but the metrics are {list(counts)}.")
    if few := [count for count in counts.values() if count != 0 and count < FEWEST_RESAMPLES]:
        raise ValueError(
            f"n_resamples must be 0 (no intervals) or at least {FEWEST_RESAMPLES}, got {few[0]}. "
            f"The default is {N_RESAMPLES}."
        )
    return counts


def find_metrics(metrics: Sequence[str | Metric]) -> dict[str, Metric]:
    """Return the metrics by name; raise for a name that does not exist."""
    unknown = [metric for metric in metrics if isinstance(metric, str) and metric not in KNOWN_METRICS]
    if unknown:
        raise ValueError(f"metrics must be among {', '.join(KNOWN_METRICS)}, got the unknown names {unknown}.")
    found = [KNOWN_METRICS[metric] if isinstance(metric, str) else metric for metric in metrics]
    return {metric.name: metric for metric in found}
