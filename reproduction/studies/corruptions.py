"""Judge fitted methods on every corruption and severity, and on the means over severities."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from densecal.evaluation import EvaluationTable
from densecal.evaluation.table import Numbers
from reproduction.measuring.measurements import OOD, PERTURBED, VAL, Measurements
from reproduction.natural.judge import METHODS, Fitted, evaluate, table_rows

ALL = "all"
"""The level that stands for the mean over all severities, which weigh the same."""
GZIP = {"method": "gzip", "mtime": 0}


def judge_conditions(
    measured: Measurements, fitted: Fitted, methods: Sequence[str] = METHODS
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return one row per method and condition; and the means over severities, with intervals."""
    names = [name for name in measured.sets if name != VAL and not name.startswith((PERTURBED, OOD))]
    tables = {name: evaluate(measured, fitted, name) for name in names}
    single = pd.DataFrame(
        {"network": measured.classifier, "condition": name, **row}
        for name, table in tables.items()
        for row in table_rows(table, methods)
    )
    means = pd.DataFrame(_means(join_conditions(list(tables.values())), methods))
    means.insert(0, "network", measured.classifier)
    return single, means


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
