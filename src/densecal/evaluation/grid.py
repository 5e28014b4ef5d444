"""Several calibrators on several conditions, measured once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from densecal.arrays import softmax, to_numpy
from densecal.arrays.checks import check_logits
from densecal.calibrators.base import Calibrator
from densecal.calibrators.names import ORACLE, UNCALIBRATED
from densecal.evaluation.conditions import Condition, bank_of
from densecal.evaluation.table import EvaluationTable, Judged
from densecal.metrics import METRICS
from densecal.metrics.resampling import Resamples
from densecal.progress import track

MEASURES = ("ece", "accuracy", "mean_confidence", "brier", "nll")
FEWEST_RESAMPLES = 20
TOP1_MEASURES = ("ece", "ece_mass", "ece_kde", "ks", "accuracy", "mean_confidence")


def evaluate_conditions(
    calibrators: Mapping[str, Calibrator],
    conditions: Sequence[Condition],
    *,
    measures: Sequence[str] = MEASURES,
    uncalibrated: bool = True,
    oracle: bool = False,
    resamples: int = 300,
    level: float = 0.95,
    seed: int = 0,
) -> EvaluationTable:
    """Measure every calibrator on every condition.

    Parameters
    ----------
    calibrators : mapping of name to fitted Calibrator
        A name such as ``"dac+ets"`` decides how the method is drawn.
    conditions : sequence of Condition
        Test sets; an out-of-domain one is only judged by its confidences.
    measures : sequence of str
        Names in ``densecal.metrics.METRICS``, or ``"mean_confidence"``. A report needs ``"ece"``, ``"accuracy"`` and
        ``"mean_confidence"`` among them.
    uncalibrated, oracle : bool
        Add the softmax as it is, and temperature scaling fitted on each condition's own labels: the bound for
        whatever rescales a whole condition.
    resamples, level, seed
        The bootstrap: at least 20 resamples, or 0, which leaves the intervals out.

    Returns
    -------
    EvaluationTable

    Examples
    --------
    >>> from densecal import Outputs, TemperatureScaling
    >>> from densecal.evaluation import Condition
    >>> test = Outputs([[4.0, 0.0]] * 4, labels=[0, 0, 0, 1])
    >>> fitted = {"ts": TemperatureScaling().fit(test.logits, test.labels)}
    >>> table = evaluate_conditions(fitted, [Condition("clean", test)])
    >>> table.by_severity()[["method", "value"]].round(3).values.tolist()
    [['uncalibrated', 0.232], ['ts', 0.0]]
    """
    labelled = tuple(sorted((c for c in conditions if not c.out_of_domain), key=lambda c: c.severity))
    if not labelled:
        raise ValueError("conditions holds no labelled test set: at least one is needed to measure honesty.")
    _check_measures(measures)
    _check_resamples(resamples)
    everyone: dict[str, Calibrator | None] = {UNCALIBRATED: None} if uncalibrated else {}
    everyone |= calibrators
    if oracle:
        everyone[ORACLE] = None
    grid = _Grid(measures, resamples, seed, len(labelled))
    outside = tuple(condition for condition in conditions if condition.out_of_domain)
    for place, condition in enumerate(track([*labelled, *outside], "evaluating")):
        distances: dict[tuple[int, Any], Any] = {}
        for name, calibrator in everyone.items():
            answer = _answer(name, calibrator, condition, distances)
            if answer is None:
                continue
            grid.add(name, place if place < len(labelled) else None, condition, *answer)
    return EvaluationTable(tuple(everyone), labelled, grid.values, grid.replicates, grid.judged, outside, level)


def _answer(
    name: str, calibrator: Calibrator | None, condition: Condition, distances: dict[tuple[int, Any], Any]
) -> tuple[Any, Any] | None:
    """Return probabilities and top-1 confidence, as NumPy arrays."""
    logits = condition.outputs.logits
    if calibrator is None:
        logits = check_logits(logits)
        if name == ORACLE:
            if condition.outputs.labels is None:
                return None
            logits = logits / _own_temperature(logits, condition.outputs.labels)
        probabilities = to_numpy(softmax(logits))
        return probabilities, probabilities.max(axis=1)
    density = condition.density_inputs()
    bank = bank_of(calibrator)
    if bank is not None and condition.distances is None:
        # One search serves the probabilities, the confidence and every other calibrator on the same bank.
        k = 1 if any(getattr(s, "scores", "") == "published_code" for s in _stages(calibrator)) else None
        if (id(bank), k) not in distances:
            distances[id(bank), k] = bank.distances(condition.outputs.features, k=k)
        density = {"distances": distances[id(bank), k]}
    probabilities = to_numpy(calibrator.predict_proba(logits, **density))
    return probabilities, to_numpy(calibrator.confidence(logits, **density))


def _stages(calibrator: Calibrator) -> Sequence[Calibrator]:
    return getattr(calibrator, "stages", (calibrator,))


def _own_temperature(logits: Any, labels: Any) -> float:
    from densecal.calibrators.temperature import TemperatureScaling

    return TemperatureScaling().fit(logits, labels).temperature_


class _Grid:
    """Values and resampled values as they come in, condition by condition."""

    def __init__(self, measures: Sequence[str], resamples: int, seed: int, conditions: int) -> None:
        self.measures = measures
        self.resamples, self.seed, self.conditions = resamples, seed, conditions
        self.values: dict[tuple[str, str], Any] = {}
        self.replicates: dict[tuple[str, str], Any] = {}
        self.judged: dict[tuple[str, str], Judged] = {}
        self._draws: dict[int, Resamples] = {}

    def add(self, method: str, place: int | None, condition: Condition, probabilities: Any, confidence: Any) -> None:
        labels = condition.outputs.labels
        correct = None if labels is None else probabilities.argmax(axis=1) == to_numpy(labels)
        self.judged[method, str(condition)] = Judged(confidence, correct)
        if place is None:
            return
        for measure in self.measures:
            first, second = self._arguments(measure, probabilities, to_numpy(labels), confidence, correct)
            value = float(confidence.mean()) if measure == "mean_confidence" else METRICS[measure](first, second)
            row = self.values.setdefault((method, measure), np.full(self.conditions, np.nan))
            row[place] = value
            if self.resamples and measure != "ece_kde":
                drawn = self._replicates(measure, first, second)
                shape = (self.conditions, self.resamples)
                self.replicates.setdefault((method, measure), np.full(shape, np.nan))[place] = drawn

    def _arguments(
        self, measure: str, probabilities: Any, labels: Any, confidence: Any, correct: Any
    ) -> tuple[Any, Any]:
        return (confidence, correct) if measure in TOP1_MEASURES else (probabilities, labels)

    def _replicates(self, measure: str, first: Any, second: Any) -> Any:
        samples = len(first)
        draws = self._draws.setdefault(samples, Resamples(samples, self.resamples, self.seed))
        if measure == "mean_confidence":
            means = [block @ first.astype(np.float32) / samples for block in draws.blocks()]
            return np.concatenate(means)
        return draws.replicates(measure, first, second)


def _check_resamples(resamples: int) -> None:
    if resamples != 0 and resamples < FEWEST_RESAMPLES:
        raise ValueError(
            f"resamples must be 0 or at least {FEWEST_RESAMPLES}, got {resamples}: so few tell nothing about chance. "
            "0 leaves the intervals out, 300 is the default."
        )


def _check_measures(measures: Sequence[str]) -> None:
    known = [name for name, metric in METRICS.items() if metric.needs != "in and out of domain"]
    known.append("mean_confidence")
    unknown = [measure for measure in measures if measure not in known]
    if unknown:
        raise ValueError(f"measures has the unknown names {unknown}; it may hold {', '.join(known)}.")
