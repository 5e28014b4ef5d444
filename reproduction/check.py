"""Check tables against the committed ones, and the committed ones against each other."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from densecal.calibrators import UNCALIBRATED
from reproduction.experiments import TIDY, Reproduction
from reproduction.methods import base_of
from reproduction.page.write import read_tables
from reproduction.protocol import N_RESAMPLES, resamples_of
from reproduction.tables import ALL, IN_DOMAIN, MEAN, MEAN_TABLES, RATIO, SEVERITY_5

TIMED = "cost"
"""The table of timings, which differ between machines."""
RELATIVE, ABSOLUTE = 2e-5, 2e-5
"""Committed values have six digits."""
MONTE_CARLO_ERROR = 0.68
"""Standard error of an interval's end, relative to the width, times the root of the number of resamples.

It is sqrt(p (1 - p)) / (2 z phi(z)) for normal replicates at p = 0.025. An end of DIA or PTS may differ by it, because
another fit has other replicates."""
SHARE_OF_SAME_FIT = 0.1
"""The share of it that the end of any other method may differ by: the seed fixes the draws, so only rounding is left. A
bandwidth per resample moves ECE-KDE by up to 0.3."""
SPREAD = Path("refits") / "spread.csv"
"""The largest difference between refits of DIA and PTS, in the folder of the results."""
ACCURACY, OUT_OF_DOMAIN = "accuracy", "ood"
CHANGES = ("table2", "additional-deltas", "effect")
"""Tables of the change of the ECE with DAC."""
VALUES = ("ours", "value", "weight", "share", "in-domain", "severity-5", "all")


class Comparison(NamedTuple):
    """Descriptions of the values that differ, and the number of those that differ no more than refits do."""

    problems: list[str]
    within_refits: int


def compare(made: Reproduction, results: Path, n_resamples: int = N_RESAMPLES) -> Comparison:
    """Return the differences from the committed table, in rows of both, beyond rounding or Monte-Carlo noise (ends).

    The intervals must have the same number of resamples. Values of DIA and PTS may also differ by the spread of their
    refits (`reproduction.studies.refits`).
    """
    tables = read_tables(results / "tables")
    committed = tables.get(made.name)
    if made.table is None or committed is None or made.name == TIMED:
        return Comparison([], 0)
    numbers = [column for column in (*VALUES, "low", "high") if column in made.table]
    keys = [str(column) for column in made.table if column not in (*numbers, "paper")]
    both = made.table.merge(committed, on=keys, suffixes=("", "_committed"))
    expected = committed["classifier"].isin(set(made.table["classifier"])).sum()
    problems = [] if len(both) == expected else [f"{made.name}: made {len(both)} of {expected} committed rows"]
    metrics = _metrics(made.name, both)
    error = MONTE_CARLO_ERROR / np.sqrt([max(1, resamples_of(metric, n_resamples)) for metric in metrics])
    spread = _spread_of_refits(made.name, both.assign(metric=metrics), tables.get(TIDY), results / SPREAD)
    refitted, within_refits = spread > 0, 0
    for column in numbers:
        new, old = both[column].to_numpy(float), both[f"{column}_committed"].to_numpy(float)
        allowed, of_refit = ABSOLUTE + RELATIVE * np.abs(old), spread
        if column in ("low", "high"):
            of_end = error * (both["high_committed"] - both["low_committed"]).to_numpy(float)
            allowed, of_refit = allowed + SHARE_OF_SAME_FIT * of_end, spread + refitted * of_end
        difference = np.abs(new - old)
        beyond = difference > allowed + of_refit
        within_refits += int((~beyond & (difference > allowed)).sum())
        for row in both[beyond].to_dict("records"):
            where = ", ".join(str(row[key]) for key in keys)
            problems.append(f"{made.name} {where}: {column} is {row[column]:.6g}, not {row[f'{column}_committed']:.6g}")
    return Comparison(problems, within_refits)


def _metrics(name: str, table: pd.DataFrame) -> list[str]:
    if name == OUT_OF_DOMAIN:
        return [column.rpartition(": ")[2] for column in table["column"]]
    fixed = MEAN_TABLES[name].metric if name in MEAN_TABLES else ACCURACY if name == ACCURACY else "ece"
    return list(table["metric"]) if "metric" in table else [fixed] * len(table)


def _spread_of_refits(name: str, rows: pd.DataFrame, tidy: pd.DataFrame | None, path: Path) -> Any:
    """Return the largest difference between refits for each row of a table: zero where refits are equal."""
    if "method" not in rows or not path.exists():
        return np.zeros(len(rows))
    of_refits = pd.read_csv(path).set_index(["classifier", "base", "metric"])
    keys = pd.MultiIndex.from_arrays([rows["classifier"], rows["method"].map(base_of), rows["metric"]])
    single = name in (TIDY, OUT_OF_DOMAIN)
    spread = of_refits["condition" if single else "mean"].reindex(keys).fillna(0).to_numpy(float)
    if name in MEAN_TABLES:
        return spread * MEAN_TABLES[name].scale
    if name not in CHANGES:
        return spread * (100 if name in (OUT_OF_DOMAIN, ACCURACY) else 1)
    # A change has two fits. The ratio is in percent of the mean ECE without DAC.
    cells = {} if tidy is None else means_of(tidy)
    bases = zip(rows["classifier"].astype(str), rows["method"].map(base_of), strict=True)
    before = [cells.get((classifier, base, "ece", ALL), 1.0) for classifier, base in bases]
    return 2 * 100 * spread / np.where(rows["column"] == RATIO, before, 1.0)


def check_committed(results: Path) -> list[str]:
    """Return the contradictions between the committed tables and the committed tidy table; needs no measurements."""
    tables = read_tables(results / "tables")
    cells = means_of(tables.pop(TIDY)) if TIDY in tables else {}
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
            elif name in CHANGES and name != "effect" and row.column != RATIO:
                expect(name, row, change(row, base_of(row.method), "ece"))
            elif name == ACCURACY and row.method == UNCALIBRATED:
                expect(name, row, 100 * cells[row.classifier, row.method, "accuracy", row.column])
            elif name == ACCURACY:
                expect(name, row, change(row, UNCALIBRATED, "accuracy"))
    return problems


def means_of(tidy: pd.DataFrame) -> dict[tuple[str, str, str, str], float]:
    """Return the means of a tidy table by classifier, method, metric and column."""
    keys = ["classifier", "method", "metric"]
    levels = tidy.groupby([*keys, "severity"])["value"].mean().unstack("severity")
    means: dict[str, Any] = {IN_DOMAIN: levels[0], SEVERITY_5: levels[5], ALL: levels.mean(axis=1)}
    means[MEAN] = tidy.groupby(keys)["value"].mean()
    return {(*key, column): float(value) for column, each in means.items() for key, value in each.items()}
