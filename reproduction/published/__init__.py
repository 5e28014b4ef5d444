"""The paper's own numbers, transcribed from its tables; ECE and its kin are in points (x 100), as printed."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from importlib import resources


@cache
def published_numbers(table: str) -> Mapping[tuple[str, str, str], float]:
    """Return one table of the paper as (classifier, method, column) -> number; a dash in the paper is left out.

    Parameters
    ----------
    table : str
        ``ece`` (table 1), ``delta`` (table 2), ``brier``, ``ece-additional``, ``delta-additional``, ``ece-mass``,
        ``ece-kde``, ``classwise-ece``, ``nll``, ``ood``, ``cost-training`` or ``cost-inference``.
    """
    path = resources.files(__name__) / "tables.csv"
    with path.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["table"] == table]
    if not rows:
        raise ValueError(f"The paper has no table {table!r} here.")
    return {(row["classifier"], row["method"], row["column"]): float(row["value"]) for row in rows if row["value"]}
