"""Predictions of the methods on a condition, and their metrics in one pass over a large condition."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from densecal.arrays import Array, random_rows, softmax, to_numpy
from densecal.calibrators import ORACLE
from densecal.calibrators.base import Calibrator
from densecal.calibrators.temperature import TemperatureScaling
from densecal.display import track
from densecal.evaluation.conditions import Condition
from densecal.metrics import MetricState
from densecal.outputs import Distances, Outputs, OutputShards

Given = TypeVar("Given")
Made = TypeVar("Made")
Mapper: TypeAlias = Callable[[Callable[[Any], Any], Iterable[Any]], Iterable[Any]]
"""A function that is called like ``map`` and returns the results in order."""

BATCH_BYTES, MOST_ROWS = 1 << 24, 8192
"""A batch has at most this many bytes of logits in float64 and this many rows."""
MOST_THREADS = 8


class Predictions(NamedTuple):
    """One method's top-1 confidence on one condition, and whether each prediction is correct (None without labels)."""

    confidence: NDArray[np.float64]
    correct: NDArray[np.bool_] | None


def has_own_confidence(calibrator: Calibrator) -> bool:
    """Return whether the confidence is not the largest of the probabilities, as in spline calibration."""
    return type(calibrator.stages[-1])._confidence is not Calibrator._confidence


def predict(
    methods: Mapping[str, Calibrator | None], outputs: Outputs
) -> Iterator[tuple[str, Array, Array | None, Distances | None]]:
    """Yield the name, probabilities, top-1 confidence and measured distances of each method, as NumPy arrays.

    The confidence is None if it is the largest probability.
    """
    measured: dict[object, Outputs] = {}
    for name, calibrator in methods.items():
        if calibrator is not None:
            stage, known = calibrator.density_stage, outputs
            if stage is not None:
                # Calibrators with equal banks and the same k share one search.
                key = stage.bank and stage.bank.fingerprint, stage.k
                known = measured[key] = measured.get(key) or calibrator.measure(outputs)
            probabilities = to_numpy(calibrator.predict_proba(known))
            own = to_numpy(calibrator.confidence(known)) if has_own_confidence(calibrator) else None
            distances = None if known is outputs else known.distances
            yield name, probabilities, own, distances
        else:
            logits = outputs.checked_logits()
            if name == ORACLE:
                logits = logits / TemperatureScaling(loss="brier").fit(outputs).temperature_
            probabilities = to_numpy(softmax(logits))
            yield name, probabilities, None, None
        del probabilities  # as large as the logits: never keep those of two methods


def evaluate_stream(
    methods: Mapping[str, Calibrator | None],
    condition: Condition,
    sample_size: int,
    seed: int,
    *,
    classwise: bool,
    progress: bool = False,
    mapper: Mapper | None = None,
) -> tuple[Condition, dict[str, MetricState]]:
    """Return the condition with a random part of its samples, and each method's metric state over all samples.

    There are no states if the condition is no larger than the part. The oracle, which is fitted on the labels, is
    evaluated on the part and has no state. A ``mapper``, such as Ray's, processes the files of a condition.
    """
    whole, rows = condition.outputs, random_rows(len(condition.outputs), sample_size, seed)
    if rows is None or condition.out_of_domain:
        return replace(condition, outputs=whole.sample(sample_size, seed), sampled_from=condition.n_samples), {}
    streamed = {name: one for name, one in methods.items() if name != ORACLE}
    run: Mapper = map
    parts: Sequence[tuple[int, Outputs | OutputShards]] = [(0, whole)]
    if mapper is not None and isinstance(whole, OutputShards):
        run, parts, progress = mapper, whole.parts(), False
    sampled, states = list[Outputs](), dict[str, MetricState]()
    for rows_of_part, found in run(partial(_evaluate_part, streamed, classwise, rows, progress), parts):
        sampled += rows_of_part
        _merge(states, found)
    return replace(condition, outputs=Outputs.concatenate(sampled), sampled_from=condition.n_samples), states


def _evaluate_part(
    methods: Mapping[str, Calibrator | None],
    classwise: bool,
    rows: NDArray[np.int64],
    progress: bool,
    part: tuple[int, Outputs | OutputShards],
) -> tuple[list[Outputs], dict[str, MetricState]]:
    """Return the requested rows in a part that begins at an index, and each method's metric state over the part."""
    start, outputs = part
    states, sampled = dict[str, MetricState](), list[Outputs]()
    results = _in_threads(partial(_measure, methods, classwise), _batches(outputs, rows - start, sampled))
    n_batches = len(outputs) // _batch_size(outputs)
    for found in track(results, "evaluating", total=n_batches) if progress else results:
        _merge(states, found)
    return sampled, states


def _merge(states: dict[str, MetricState], found: Mapping[str, MetricState]) -> None:
    for name, state in found.items():
        states[name] = states[name].merge(state) if name in states else state


def _measure(methods: Mapping[str, Calibrator | None], classwise: bool, batch: Outputs) -> dict[str, MetricState]:
    labels, found = to_numpy(batch.labels), {}
    for name, probabilities, confidence, _ in predict(methods, batch):
        found[name] = MetricState(classwise=classwise).update_checked(probabilities, labels, confidence)
        del probabilities
    return found


def _batches(outputs: Outputs | OutputShards, rows: NDArray[np.int64], sampled: list[Outputs]) -> Iterator[Outputs]:
    """Yield batches, and append their sampled rows to a list."""
    start = 0
    for batch in outputs.batches(_batch_size(outputs)):
        first, last = np.searchsorted(rows, [start, start + len(batch)])
        if first < last:
            sampled.append(batch[rows[first:last] - start])
        start += len(batch)
        yield batch


def _batch_size(outputs: Outputs | OutputShards) -> int:
    return max(1, min(MOST_ROWS, BATCH_BYTES // (8 * outputs.n_classes)))


def _in_threads(make: Callable[[Given], Made], items: Iterable[Given]) -> Iterator[Made]:
    """Yield the results for the items, in order, from OMP_NUM_THREADS threads or one per core."""
    wanted = int(os.environ.get("OMP_NUM_THREADS", "").split(",")[0] or 0)
    threads = min(MOST_THREADS, wanted or os.cpu_count() or 1)
    with ThreadPoolExecutor(threads) as pool:
        waiting: deque[Future[Made]] = deque()
        for item in items:
            waiting.append(pool.submit(make, item))
            if len(waiting) > threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
