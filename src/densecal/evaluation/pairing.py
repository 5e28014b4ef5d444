"""Check that two evaluations can be joined: the same samples, evaluated alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from densecal.arrays import to_numpy
from densecal.outputs import Outputs

if TYPE_CHECKING:
    from densecal.evaluation.table import EvaluationTable


def check_paired(one: EvaluationTable, other: EvaluationTable) -> None:
    """Raise where differences between methods of the two tables would not be paired."""
    ours, theirs = ([*table.conditions, *table.out_of_domain] for table in (one, other))
    if [str(condition) for condition in ours] != [str(condition) for condition in theirs]:
        raise ValueError("The tables are of different conditions. Evaluate both on the same conditions.")
    for condition, same in zip(ours, theirs, strict=True):
        if not _same_samples(condition.outputs, same.outputs):
            raise ValueError(
                f"The tables have different samples of {str(condition)!r}. Evaluate both on the same ones."
            )
    settings = _settings(other)
    for name, value in _settings(one).items():
        if name in settings and settings[name] != value:
            raise ValueError(f"The tables differ in {name}: {value} and {settings[name]}. Evaluate both alike.")


def _settings(table: EvaluationTable) -> dict[str, object]:
    """Return how a table was evaluated, by the name of the setting."""
    found: dict[str, object] = {"level": table.level, "seed": table.seed}
    for method, metric in table.values:
        drawn = table.replicates.get((method, metric), np.empty((1, 0)))
        found |= {f"n_resamples of {metric}": drawn.shape[1], f"metric {metric}": table.own_metrics.get(metric)}
    return found


def _same_samples(one: Outputs, other: Outputs) -> bool:
    ours, theirs = ([] if outputs.labels is None else to_numpy(outputs.labels) for outputs in (one, other))
    return len(one) == len(other) and np.array_equal(ours, theirs)
