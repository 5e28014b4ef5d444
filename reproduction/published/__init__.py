"""The paper's numbers, transcribed from its tables; calibration errors are in points (x 100), as published."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from importlib import resources


@cache
def published_numbers(table: str) -> Mapping[tuple[str, str, str], float]:
    """Return one table of the paper as (classifier, method, column) -> number, without dashes.

    The tables are ``ece`` (table 1), ``delta`` (table 2), ``brier``, ``ece-additional``, ``delta-additional``,
    ``ece-mass``, ``ece-kde``, ``classwise-ece``, ``nll``, ``ood``, ``cost-training`` and ``cost-inference``.
    """
    path = resources.files(__name__) / "tables.csv"
    with path.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["table"] == table]
    if not rows:
        raise ValueError(f"There is no table {table!r} among the paper's numbers.")
    return {(row["classifier"], row["method"], row["column"]): float(row["value"]) for row in rows if row["value"]}
