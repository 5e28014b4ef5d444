"""Evaluate fitted methods on every corruption and severity, and on the means over severities."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from densecal.evaluation import EvaluationTable
from densecal.evaluation.table import Numbers
from reproduction.measuring.measurements import Measurements, labelled_sets
from reproduction.natural.judge import METHODS, Fitted, evaluate, table_rows

ALL = "all"
"""The level of the mean over all severities, with equal weights."""


def judge_conditions(
    measured: Measurements, fitted: Fitted, methods: Sequence[str] = METHODS
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return one row per method and condition; and the means over severities, with intervals."""
    tables = {name: evaluate(measured, fitted, name) for name in labelled_sets(measured.sets)}
    single = pd.DataFrame(
        {"network": measured.classifier, "condition": name, **row}
        for name, table in tables.items()
        for row in table_rows(table, methods)
    )
    means = pd.DataFrame(_means(join_conditions(list(tables.values())), methods))
    means.insert(0, "network", measured.classifier)
    return single, means


def write_judged(folder: Path, name: str, single: pd.DataFrame, means: pd.DataFrame) -> None:
    """Write what `judge_conditions` returns to NAME.csv.gz, without a time, and NAME-means.csv."""
    folder.mkdir(parents=True, exist_ok=True)
    single.round(5).to_csv(folder / f"{name}.csv.gz", index=False, compression={"method": "gzip", "mtime": 0})
    means.round(5).to_csv(folder / f"{name}-means.csv", index=False)


def join_conditions(tables: Sequence[EvaluationTable]) -> EvaluationTable:
    """Return one table of the conditions of all tables, which share methods and draws."""

    def joined(every: Sequence[Numbers]) -> Numbers:
        return {key: np.concatenate([one[key] for one in every]) for key in every[0]}

    tables = sorted(tables, key=lambda table: table.conditions[0].severity)
    return replace(
        tables[0],
        conditions=tuple(condition for table in tables for condition in table.conditions),
        values=joined([table.values for table in tables]),
        replicates=joined([table.replicates for table in tables]),
        predictions={},
        distances={},
    )


def _means(table: EvaluationTable, methods: Sequence[str]) -> Iterator[dict[str, object]]:
    for severity in (None, *table.severities):
        for row in table_rows(table, methods, severity):
            own = table.estimate(row["method"], "ece", severity)
            # The accuracy error of a mean is not the mean of the errors, which is taken over the conditions.
            del row["accuracy error"]
            level = ALL if severity is None else str(severity)
            yield {"severity": level, **row, "ece low": own.low, "ece high": own.high}
