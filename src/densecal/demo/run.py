"""Fit every method on the demo's validation set, judge them all on its test sets."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from densecal.calibrators.base import Calibrator
from densecal.calibrators.names import DAC, SHIFT_FITTED, is_shift_fitted
from densecal.calibrators.registry import make_calibrator
from densecal.demo.data_sets import DATA, Demo, open_demo
from densecal.density.bank import FeatureBank
from densecal.errors import CalibrationWarning
from densecal.evaluation import EvaluationTable, evaluate_conditions, measure_distances
from densecal.progress import track

METHODS = ("ts", "ets", "spl", "dac", "dac+ts", "dac+ets", "dac+spl", "dac-shift+ets")
"""What the demo fits, beside the uncalibrated softmax; the last one on perturbed validation images as well."""


@dataclass(frozen=True)
class DemoResult:
    """What the demo found: its data, the table, the fitted calibrators, and what the fits warned of.

    Examples
    --------
    >>> sorted(DemoResult.__dataclass_fields__)
    ['calibrators', 'demo', 'table', 'warnings']
    """

    demo: Demo
    table: EvaluationTable
    calibrators: dict[str, Calibrator]
    warnings: list[str]


def run_demo(folder: str | Path = DATA, *, resamples: int = 300) -> DemoResult:
    """Fit every method and judge it on every condition.

    Examples
    --------
    >>> result = run_demo(resamples=0)
    >>> result.table.methods[:3]
    ('uncalibrated', 'ts', 'ets')
    """
    demo = open_demo(folder)
    bank = FeatureBank(demo.train.features, k=demo.k)
    conditions = measure_distances(demo.conditions, bank)
    validation = demo.validation
    distances = bank.distances(validation.features)
    moved = demo.perturbed
    shifted = None if moved is None else (moved.logits, moved.labels, bank.distances(moved.features))
    wanted = [name for name in METHODS if shifted is not None or not is_shift_fitted(name)]
    calibrators = {name: make_calibrator(name.replace(SHIFT_FITTED, DAC), bank=bank) for name in wanted}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CalibrationWarning)
        for name, calibrator in track(calibrators.items(), "fitting", total=len(calibrators)):
            more: dict[str, Any] = {"shifted": shifted} if is_shift_fitted(name) else {}
            calibrator.fit(validation.logits, validation.labels, distances=distances, **more)
    given = [str(warning.message) for warning in caught if issubclass(warning.category, CalibrationWarning)]
    table = evaluate_conditions(calibrators, conditions, resamples=resamples)
    return DemoResult(demo, table, calibrators, list(dict.fromkeys(given)))
