"""Check tables against the committed ones, and the committed ones against each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from densecal.calibrators import UNCALIBRATED
from reproduction.experiments import TIDY, Reproduction
from reproduction.page.write import read_tables
from reproduction.protocol import N_RESAMPLES, resamples_of
from reproduction.tables import ALL, IN_DOMAIN, MEAN, MEAN_TABLES, RATIO, SEVERITY_5

TIMED = "cost"
"""The table of timings, which differ between machines."""
RELATIVE, ABSOLUTE = 2e-5, 2e-5
"""Committed values have six digits."""
END_NOISE = 0.1 * 0.68
"""Allowed difference of an interval's end, relative to the width, times the root of the number of resamples.

It is a tenth of the Monte-Carlo standard error, which is sqrt(p (1 - p)) / (2 z phi(z)) = 0.68 for normal replicates at
p = 0.025. The seed fixes the draws, so only rounding is left; a bandwidth per resample moves ECE-KDE by up to 0.3."""
VALUES = ("ours", "value", "weight", "share", "in-domain", "severity-5", "all")


def compare(made: Reproduction, results: Path, n_resamples: int = N_RESAMPLES) -> list[str]:
    """Return the differences from the committed table, in rows of both, beyond rounding or Monte-Carlo noise (ends).

    The intervals must have the same number of resamples.
    """
    committed = read_tables(results / "tables").get(made.name)
    if made.table is None or committed is None or made.name == TIMED:
        return []
    numbers = [column for column in (*VALUES, "low", "high") if column in made.table]
    keys = [str(column) for column in made.table if column not in (*numbers, "paper")]
    both = made.table.merge(committed, on=keys, suffixes=("", "_committed"))
    expected = committed["classifier"].isin(set(made.table["classifier"])).sum()
    problems = [] if len(both) == expected else [f"{made.name}: made {len(both)} of {expected} committed rows"]
    metrics = both["metric"] if "metric" in both else [getattr(MEAN_TABLES.get(made.name), "metric", "ece")] * len(both)
    noise = END_NOISE / np.sqrt([max(1, resamples_of(metric, n_resamples)) for metric in metrics])
    for column in numbers:
        new, old = both[column].to_numpy(float), both[f"{column}_committed"].to_numpy(float)
        allowed = ABSOLUTE + RELATIVE * np.abs(old)
        if column in ("low", "high"):
            allowed = allowed + noise * (both["high_committed"] - both["low_committed"]).to_numpy(float)
        for row in both[np.abs(new - old) > allowed].to_dict("records"):
            where = ", ".join(str(row[key]) for key in keys)
            problems.append(f"{made.name} {where}: {column} is {row[column]:.6g}, not {row[f'{column}_committed']:.6g}")
    return problems


def check_committed(results: Path) -> list[str]:
    """Return the contradictions between the committed tables and the committed tidy table; needs no measurements."""
    tables = read_tables(results / "tables")
    cells = _means(tables.pop(TIDY)) if TIDY in tables else {}
    problems = []

    def expect(name: str, row: Any, found: float) -> None:
        if abs(row.ours - found) > 1e-3 + RELATIVE * abs(found):
            where = f"{name} {row.classifier}, {row.method}, {row.column}"
            problems.append(f"{where} is {row.ours}, but its conditions give {found:.6g}")

    def change(row: Any, base: str, metric: str) -> float:
        after, before = (cells[row.classifier, method, metric, row.column] for method in (row.method, base))
        return 100 * (after - before)

    for name, table in tables.items() if cells else ():
        row: Any
        for row in table.itertuples():
            if name in MEAN_TABLES:
                mean = MEAN_TABLES[name]
                expect(name, row, mean.scale * cells[row.classifier, row.method, mean.metric, row.column])
            elif name in ("table2", "additional-deltas") and row.column != RATIO:
                expect(name, row, change(row, row.method.partition("+")[2], "ece"))
            elif name == "accuracy" and row.method == UNCALIBRATED:
                expect(name, row, 100 * cells[row.classifier, row.method, "accuracy", row.column])
            elif name == "accuracy":
                expect(name, row, change(row, UNCALIBRATED, "accuracy"))
    return problems


def _means(tidy: pd.DataFrame) -> dict[tuple[str, str, str, str], float]:
    keys = ["classifier", "method", "metric"]
    levels = tidy.groupby([*keys, "severity"])["value"].mean().unstack("severity")
    means: dict[str, Any] = {IN_DOMAIN: levels[0], SEVERITY_5: levels[5], ALL: levels.mean(axis=1)}
    means[MEAN] = tidy.groupby(keys)["value"].mean()
    return {(*key, column): float(value) for column, each in means.items() for key, value in each.items()}
