"""One pass over a large test set: the metrics of all its samples, and a random sample for what needs rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

import numpy as np

from densecal.arrays import to_numpy
from densecal.calibrators.base import Calibrator
from densecal.calibrators.names import ORACLE
from densecal.evaluation.conditions import Condition
from densecal.evaluation.predictions import predict
from densecal.metrics import MetricState
from densecal.outputs import Outputs, OutputShards
from densecal.progress import track

Item = TypeVar("Item")

BATCH_BYTES, MOST_ROWS = 1 << 24, 8192
"""A batch has this many bytes of logits in float64, and at most so many rows."""


def sample_condition(condition: Condition, sample_size: int, seed: int) -> Condition:
    """Return the condition with at most ``sample_size`` of its samples, in memory and in their order."""
    rows = _sampled_rows(len(condition.outputs), sample_size, seed)
    return replace(condition, outputs=condition.loaded if rows is None else condition.outputs[rows])


def evaluate_stream(
    methods: Mapping[str, Calibrator | None],
    condition: Condition,
    sample_size: int,
    seed: int,
    *,
    classwise: bool,
) -> tuple[Condition, dict[str, MetricState]]:
    """Return the condition with a random sample of its samples, and the state of each method over all samples.

    The states are empty if the condition is no larger than the sample. The oracle, which is fitted on the labels, has
    none: it is a method of the sample.
    """
    rows = _sampled_rows(len(condition.outputs), sample_size, seed)
    if rows is None or condition.out_of_domain:
        return sample_condition(condition, sample_size, seed), {}
    streamed = {name: one for name, one in methods.items() if name != ORACLE}
    states = {name: MetricState(classwise=classwise) for name in streamed}
    parts, start = [], 0
    for batch in _read_ahead(_batches(condition.outputs)):
        first, last = np.searchsorted(rows, [start, start + len(batch)])
        if first < last:
            parts.append(batch[rows[first:last] - start])
        start += len(batch)
        labels = to_numpy(batch.labels)
        for name, probabilities, confidence, _ in predict(streamed, batch):
            states[name].update_checked(probabilities, labels, confidence)
            del probabilities
    return replace(condition, outputs=Outputs.concatenate(parts)), states


def _sampled_rows(n_samples: int, sample_size: int, seed: int) -> np.ndarray | None:
    """Return the indices of a random sample, ascending, or None if it is not smaller than the whole."""
    if n_samples <= sample_size:
        return None
    return np.sort(np.random.default_rng(seed).choice(n_samples, sample_size, replace=False, shuffle=False))


def _batches(outputs: Outputs | OutputShards) -> Iterator[Outputs]:
    rows = max(1, min(MOST_ROWS, BATCH_BYTES // (8 * outputs.n_classes)))
    yield from track(outputs.batches(rows), "reading", total=-(-len(outputs) // rows))


def _read_ahead(items: Iterator[Item]) -> Iterator[Item]:
    """Yield the items, each read in another thread while the one before is used."""
    with ThreadPoolExecutor(1) as reader:
        ahead = reader.submit(next, items, None)
        while (item := ahead.result()) is not None:
            ahead = reader.submit(next, items, None)
            yield item
