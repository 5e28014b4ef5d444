"""Read the demo's data, fit every method on its validation set, judge them all on its test sets."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path

from densecal.bank import FeatureBank
from densecal.calibrators.base import Calibrator
from densecal.calibrators.registry import make_calibrator
from densecal.errors import CalibrationWarning
from densecal.evaluation import Condition, EvaluationTable, evaluate_conditions, measure_distances, read_conditions
from densecal.outputs import Outputs
from densecal.progress import track

DATA = Path(__file__).parent / "data"
METHODS = ("ts", "ets", "spl", "dac", "dac+ts", "dac+ets", "dac+spl")
"""What the demo fits, beside the uncalibrated softmax."""
DEFAULT_K = 10


@dataclass(frozen=True)
class Demo:
    """The demo's data: what the classifier was trained on, a validation set, and test sets that move away.

    Attributes
    ----------
    train, validation : Outputs
        Training features for the bank, and what the calibrators are fitted on.
    conditions : list of Condition
        The clean test set, the same images at severities 1 to 5, and data of other classes.
    k : int
        Which neighbour's distance counts in a bank of this size.
    """

    train: Outputs
    validation: Outputs
    conditions: list[Condition]
    k: int


@dataclass(frozen=True)
class DemoResult:
    """What the demo found: the table, the fitted calibrators, and what the fits warned of."""

    demo: Demo
    table: EvaluationTable
    calibrators: dict[str, Calibrator]
    warnings: list[str]


def load_demo(folder: str | Path = DATA) -> Demo:
    """Read the data inside the package.

    Examples
    --------
    >>> demo = load_demo()
    >>> sorted({condition.severity for condition in demo.conditions})
    [0, 1, 2, 3, 4, 5]
    """
    folder = Path(folder)
    train = Outputs.load(folder / "train.safetensors")
    conditions = read_conditions(sorted(folder.glob("test*.safetensors")))
    outside = sorted(folder.glob("ood*.safetensors"))
    if outside:
        conditions += read_conditions(outside, out_of_domain=True)
    k = int(train.facts.get("k", DEFAULT_K))
    return Demo(train, Outputs.load(folder / "val.safetensors"), conditions, k)


def run_demo(folder: str | Path = DATA, *, resamples: int = 300) -> DemoResult:
    """Fit every method and judge it on every condition."""
    demo = load_demo(folder)
    bank = FeatureBank(demo.train.features, k=demo.k)
    conditions = measure_distances(demo.conditions, bank)
    validation = demo.validation
    distances = bank.distances(validation.features)
    calibrators = {name: make_calibrator(name, bank=bank) for name in METHODS}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CalibrationWarning)
        for calibrator in track(calibrators.values(), "fitting", total=len(calibrators)):
            calibrator.fit(validation.logits, validation.labels, distances=distances)
    given = [str(warning.message) for warning in caught if issubclass(warning.category, CalibrationWarning)]
    table = evaluate_conditions(calibrators, conditions, resamples=resamples)
    return DemoResult(demo, table, calibrators, list(dict.fromkeys(given)))
