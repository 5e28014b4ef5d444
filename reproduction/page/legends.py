"""Legends of the reproduced tables: the meaning of the columns, and their unit."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from densecal.calibrators import ORACLE
from reproduction.methods import PUBLISHED
from reproduction.tables import MEAN_TABLES

POINTS = "points (x 100)"
_CHANGE = f"Change of the ECE with DAC in {POINTS}, negative is better"
_UNITS: Mapping[str, str] = {
    "table2": f"{_CHANGE}; ratio: gain in % of the ECE without DAC.",
    "additional-deltas": f"{_CHANGE}; ratio: gain in % of the ECE without DAC.",
    "effect": f"{_CHANGE}.",
    "others": f"Mean ECE over all conditions, in {POINTS}.",
    "ood": f"Out-of-domain metrics in {POINTS}.",
    "accuracy": f"Uncalibrated: accuracy in {POINTS}; other methods: change of the accuracy.",
    "cost": "fit_seconds in seconds; microseconds_a_sample: calibration only, given logits and distances.",
    "layer-importance": "weight: DAC's weight of a layer's distance; share: its share of the temperature, 0 to 1.",
    "all-layers": "share: a layer's share of DAC's weights, 0 to 1.",
    "k-sensitivity": "value: mean ECE over severities 0 to 5, 0 to 1 (x 100 gives points); without DAC, k is –.",
    "layer-choice": "value: mean ECE over severities 0 to 5, 0 to 1 (x 100 gives points).",
    "data-efficiency": "ECE, 0 to 1 (x 100 gives points), after a fit on that fraction of the validation set; draw: "
    "number of the random draw.",
}
_COLUMNS = {
    "mean": "mean: over all test conditions, as in the paper's table",
    "in-domain": "in-domain: the clean test set",
    "all": "all: over the means of severities 0 to 5",
}


def legend(name: str, table: pd.DataFrame) -> list[str]:
    """Return the lines that explain a reproduced table."""
    lines = [_unit(name)]
    if "column" in table:
        given = set(table["column"])
        texts = [text for column, text in _COLUMNS.items() if column in given]
        lines += [f"{'; '.join(texts)}."] if texts else []
    if "method" in table:
        lines += _methods(set(table["method"]))
    if "paper" in table:
        ours = "ours, low, high: our value and its 95 % bootstrap interval"
        lines.append(f"paper: as published; {ours}; *: outside the interval.")
    elif {"low", "high"} <= set(table.columns):
        lines.append("low, high: the 95 % bootstrap interval.")
    return [line for line in lines if line]


def _unit(name: str) -> str:
    mean = MEAN_TABLES.get(name)
    if mean is None:
        return _UNITS.get(name, "")
    return f"{mean.title}, {f'in {POINTS}' if mean.scale == 100 else 'not scaled'}."


def _methods(methods: set[str]) -> list[str]:
    parts = []
    if any(method.startswith(PUBLISHED) for method in methods):
        parts.append(f"{PUBLISHED}+X: X after DAC as in the published code (first neighbour, squared distances)")
    if ORACLE in methods:
        parts.append(f"{ORACLE}: a temperature fitted on the labels of each condition, for reference")
    return [f"{'; '.join(parts)}."] if parts else []
