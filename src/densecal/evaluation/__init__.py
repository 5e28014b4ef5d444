"""Evaluate calibrators on conditions; the command, the report and the reproduction share this code."""

from __future__ import annotations

from densecal.evaluation.conditions import Condition
from densecal.evaluation.evaluate import DEFAULT_METRICS, evaluate_conditions
from densecal.evaluation.predictions import Predictions
from densecal.evaluation.table import EvaluationTable
from densecal.evaluation.test_sets import read_conditions

__all__ = [
    "DEFAULT_METRICS",
    "Condition",
    "EvaluationTable",
    "Predictions",
    "evaluate_conditions",
    "read_conditions",
]
