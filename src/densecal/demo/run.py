"""Fit every method on the demo's validation set and evaluate it on the test sets."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
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
    # The paper's fit measures distances to training samples, the shift fit to centres.
    rows, centres = FeatureBank(demo.train.features, k=demo.k), FeatureBank(demo.train.features)
    methods = [name for name in METHODS if demo.perturbed is not None or not is_shift_fitted(name)]
    calibrators = {name: make_calibrator(name, bank=centres if is_shift_fitted(name) else rows) for name in methods}
    validation = calibrators["dac"].measure(demo.validation)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CalibrationWarning)
        for name, calibrator in track(calibrators.items(), "fitting"):
            shift_fitted = is_shift_fitted(name)
            calibrator.fit(
                demo.validation if shift_fitted else validation, shifted=demo.perturbed if shift_fitted else None
            )
    given = [str(warning.message) for warning in caught if issubclass(warning.category, CalibrationWarning)]
    table = evaluate_conditions(calibrators, demo.conditions, n_resamples=n_resamples)
    return DemoResult(demo, table, calibrators, list(dict.fromkeys(given)))
