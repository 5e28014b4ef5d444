"""Fit every method on the demo's validation set and evaluate it on the test sets."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from pathlib import Path

from densecal.calibrators.base import Calibrator
from densecal.calibrators.names import is_shift_fitted
from densecal.calibrators.registry import make_calibrator
from densecal.demo.data_sets import DATA, Demo, open_demo
from densecal.density.bank import FeatureBank
from densecal.errors import CalibrationWarning
from densecal.evaluation import EvaluationTable, evaluate_conditions
from densecal.progress import track

METHODS = ("ts", "ets", "spl", "dac", "dac+ts", "dac+ets", "dac+spl", "dac-shift+ets")
"""The methods of the demo, compared with the uncalibrated softmax; the last is also fitted on perturbed images."""


@dataclass(frozen=True)
class DemoResult:
    """The demo's data, the evaluation, the fitted calibrators and the warnings of their fits."""

    demo: Demo
    table: EvaluationTable
    calibrators: dict[str, Calibrator]
    warnings: list[str]


def run_demo(folder: str | Path = DATA, *, n_resamples: int = 300) -> DemoResult:
    """Fit every method and evaluate it on every test set."""
    demo = open_demo(folder)
    bank = FeatureBank(demo.train.features, k=demo.k)
    methods = [name for name in METHODS if demo.perturbed is not None or not is_shift_fitted(name)]
    calibrators = {name: make_calibrator(name, bank=bank) for name in methods}
    measure = calibrators["dac"].measure
    validation = measure(demo.validation)
    perturbed = None if demo.perturbed is None else measure(demo.perturbed)
    conditions = [replace(condition, outputs=measure(condition.outputs)) for condition in demo.conditions]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CalibrationWarning)
        for name, calibrator in track(calibrators.items(), "fitting", total=len(calibrators)):
            calibrator.fit(validation, shifted=perturbed if is_shift_fitted(name) else None)
    given = [str(warning.message) for warning in caught if issubclass(warning.category, CalibrationWarning)]
    table = evaluate_conditions(calibrators, conditions, n_resamples=n_resamples)
    return DemoResult(demo, table, calibrators, list(dict.fromkeys(given)))
