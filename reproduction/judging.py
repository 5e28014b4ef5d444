"""Judge one method on every test set: the measures, their bootstrap, and the out-of-domain measures."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from densecal.arrays import softmax, to_numpy
from densecal.calibrators.base import Calibrator
from densecal.calibrators.names import ORACLE
from densecal.calibrators.temperature import TemperatureScaling
from densecal.evaluation import Condition
from densecal.metrics import METRICS, classwise_calibration_error
from densecal.metrics.resampling import Resamples
from reproduction.fast_bootstrap import kde_replicates, ood_replicates
from reproduction.results import CLASSWISE_OF_PAPER, MethodResult, interval_of

TOP1 = ("ece", "ece_mass", "ece_kde", "accuracy")
DISTRIBUTION = ("brier", "nll", "classwise_ece", CLASSWISE_OF_PAPER)
MEASURES = (*TOP1, *DISTRIBUTION)
OOD_MEASURES = ("fpr_at_95_tpr", "detection_error", "auroc", "aupr_in", "aupr_out")
SLOW = {"ece_kde": 5, "ece_mass": 2}
"""Measures that cost a pass over all samples a resample get this many times fewer of them."""

_PAPER_CLASSWISE = partial(classwise_calibration_error, n_bins=14, reduction="sum")


def judge(
    method: str,
    calibrator: Calibrator | None,
    conditions: Sequence[Condition],
    *,
    classifier: str = "",
    out_of_domain: Sequence[Condition] = (),
    measures: Iterable[str] = MEASURES,
    resamples: int = 300,
    seed: int = 0,
    metadata: dict[str, Any] | None = None,
) -> MethodResult:
    """Measure a method on labelled conditions, and how well its confidence tells out-of-domain sets apart.

    Parameters
    ----------
    method : str
        Its name; ``"oracle"`` fits a temperature on each condition's own labels.
    calibrator : Calibrator or None
        None takes the logits' softmax as it is (or the oracle).
    conditions, out_of_domain : sequence of Condition
    measures : iterable of str
        Out of `MEASURES`.
    resamples, seed
        The bootstrap; 0 leaves the intervals out.
    """
    measures = tuple(measures)
    bootstrap = _Bootstrap(resamples, seed)
    severities = np.array([condition.severity for condition in conditions])
    values: dict[str, Any] = {measure: np.full(len(conditions), np.nan) for measure in measures}
    ends = {measure: np.full((2, len(conditions)), np.nan) for measure in measures}
    drawn: dict[str, list[Any]] = {measure: [] for measure in measures}
    clean: Any = None
    for place, condition in enumerate(conditions):
        probabilities, confidence = answer(method, calibrator, condition)
        clean = confidence if condition.severity == 0 else clean
        for measure in measures:
            first, second = _arguments(measure, probabilities, confidence, to_numpy(condition.outputs.labels))
            value, replicates = float(_function(measure)(first, second)), bootstrap(measure, first, second)
            found = interval_of(value, replicates, measure)
            values[measure][place] = value
            ends[measure][:, place] = found.low, found.high
            drawn[measure].append(replicates)
    return MethodResult(
        classifier=classifier,
        method=method,
        conditions=tuple(_name(condition) for condition in conditions),
        severities=severities,
        values=values,
        lows={measure: low for measure, (low, _) in ends.items()},
        highs={measure: high for measure, (_, high) in ends.items()},
        replicates={measure: _by_severity(np.array(rows), severities) for measure, rows in drawn.items()},
        ood=_judge_ood(method, calibrator, clean, out_of_domain, resamples, seed),
        metadata=metadata or {},
    )


def answer(method: str, calibrator: Calibrator | None, condition: Condition) -> tuple[Any, Any]:
    """Return a method's probabilities and top-1 confidence on one condition."""
    logits = condition.outputs.logits
    if calibrator is not None:
        density = condition.density_inputs()
        probabilities = to_numpy(calibrator.predict_proba(logits, **density))
        return probabilities, to_numpy(calibrator.confidence(logits, **density))
    if method == ORACLE and condition.outputs.labels is not None:
        logits = logits / TemperatureScaling().fit(logits, condition.outputs.labels).temperature_
    probabilities = to_numpy(softmax(logits))
    return probabilities, probabilities.max(axis=1)


def _judge_ood(
    method: str, calibrator: Calibrator | None, clean: Any, sets: Sequence[Condition], resamples: int, seed: int
) -> dict[str, dict[str, Any]]:
    if method == ORACLE or clean is None:
        return {}
    found: dict[str, dict[str, Any]] = {}
    for condition in sets:
        _, confidence = answer(method, calibrator, condition)
        found[condition.name] = {}
        drawn = ood_replicates(clean, confidence, resamples, seed)
        for measure in OOD_MEASURES:
            found[condition.name][measure] = np.array([METRICS[measure](clean, confidence), *drawn[measure]])
    return found


class _Bootstrap:
    """Draws shared by every method and condition of one size."""

    def __init__(self, resamples: int, seed: int) -> None:
        self.resamples, self.seed = resamples, seed
        self._draws: dict[tuple[int, int], Resamples] = {}

    def __call__(self, measure: str, first: Any, second: Any) -> Any:
        count = self.resamples // SLOW.get(measure, 1)
        if count == 0:
            return np.empty(0)
        key = (len(first), count)
        draws = self._draws.setdefault(key, Resamples(*key, self.seed))
        if measure == "ece_kde":
            return kde_replicates(draws, first, second)
        return draws.replicates(_function(measure), first, second)


def _function(measure: str) -> Callable[[Any, Any], float]:
    return _PAPER_CLASSWISE if measure == CLASSWISE_OF_PAPER else METRICS[measure]


def _arguments(measure: str, probabilities: Any, confidence: Any, labels: Any) -> tuple[Any, Any]:
    if measure in TOP1:
        return confidence, probabilities.argmax(axis=1) == labels
    return probabilities, labels


def _by_severity(rows: Any, severities: Any) -> Any:
    """Average (conditions, resamples) over the conditions of each severity."""
    return np.stack([rows[severities == level].mean(axis=0) for level in np.unique(severities)])


def _name(condition: Condition) -> str:
    return condition.name if condition.severity == 0 else f"{condition.name}-{condition.severity}"
