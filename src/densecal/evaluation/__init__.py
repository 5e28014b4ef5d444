"""The evaluation grid: calibrators x conditions -> one table, for the command, the report and the paper alike."""

from __future__ import annotations

from densecal.evaluation.conditions import (
    Condition,
    bank_of,
    density_stage,
    measure_distances,
    method_name,
    read_conditions,
)
from densecal.evaluation.grid import DEFAULT_METRICS, evaluate_conditions
from densecal.evaluation.table import EvaluationTable, Predictions

__all__ = [
    "DEFAULT_METRICS",
    "Condition",
    "EvaluationTable",
    "Predictions",
    "bank_of",
    "density_stage",
    "evaluate_conditions",
    "measure_distances",
    "method_name",
    "read_conditions",
]
