"""The demo: a comparison of methods on outputs of a small CIFAR-10 classifier, bundled with the package."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from densecal.calibrators.base import Calibrator
from densecal.calibrators.registry import is_shift_fitted, make_calibrator
from densecal.density.bank import FeatureBank
from densecal.density.defaults import choose_k
from densecal.display import track
from densecal.errors import CalibrationWarning
from densecal.evaluation import Condition, EvaluationTable, evaluate_conditions, read_conditions
from densecal.outputs import Outputs

DATA = Path(__file__).parent / "data"
METHODS = ("ts", "ets", "spl", "dac", "dac+ts", "dac+ets", "dac+spl", "dac-shift+ets")
"""The methods of the demo, compared with the uncalibrated softmax; the last is also fitted on perturbed images."""


@dataclass(frozen=True)
class Demo:
    """The demo's data: training set (bank), validation set, perturbed validation images (shift fit), and test sets.

    The conditions are the clean test set, the same images at severities 1 to 5, and images of other classes. ``k`` is
    the default for a bank of this size.
    """

    train: Outputs
    validation: Outputs
    perturbed: Mapping[str, Outputs]
    conditions: list[Condition]
    k: int

    def fit(self, method: str) -> Calibrator:
        """Fit a method. The paper's DAC measures distances to training samples, the shift fit to centres."""
        if is_shift_fitted(method):
            return make_calibrator(method, bank=self.centre_bank).fit(self.validation, shifted=self.perturbed)
        return make_calibrator(method, bank=self.row_bank).fit(self.measured)

    @cached_property
    def row_bank(self) -> FeatureBank:
        """The training samples."""
        return FeatureBank(self.train.features, k=self.k)

    @cached_property
    def centre_bank(self) -> FeatureBank:
        """The centres of the training samples."""
        return FeatureBank(self.train.features)

    @cached_property
    def measured(self) -> Outputs:
        """The validation set with its distances to the training samples."""
        return make_calibrator("dac", bank=self.row_bank).measure(self.validation)


def load_demo(name: str, folder: str | Path = DATA) -> Outputs:
    """Read one of the demo's sets from the package, or from a folder with the same file names.

    The sets are ``train`` (the bank), ``val``, ``perturbed`` (validation images), ``clean``, ``shifted-1`` to
    ``shifted-5`` and ``ood-fashion``.
    """
    path = Path(folder) / f"{name}.safetensors"
    if not path.exists():
        known = sorted(file.stem for file in Path(folder).glob("*.safetensors"))
        raise ValueError(f"The demo has no set {name!r}; the available sets are {', '.join(known) or 'none'}.")
    return Outputs.load(path)


def load_domains(folder: str | Path = DATA) -> dict[str, Outputs]:
    """Read the perturbed validation images as named domains, one per kind and strength of the perturbation.

    Examples
    --------
    >>> domains = load_domains()
    >>> len(domains), len(domains["rotate/strong"])
    (45, 32)
    """
    outputs, start = load_demo("perturbed", folder), 0
    domains = {}
    for name, count in json.loads(outputs.metadata.get("domains", f'{{"perturbed": {len(outputs)}}}')).items():
        domains[name] = outputs[start : start + count]
        start += count
    return domains


def open_demo(folder: str | Path = DATA) -> Demo:
    """Read all of the demo's sets."""
    train, validation = load_demo("train", folder), load_demo("val", folder)
    tests = [path for name in ("clean", "shifted-*") for path in sorted(Path(folder).glob(f"{name}.safetensors"))]
    outside = sorted(Path(folder).glob("ood-*.safetensors"))
    conditions = read_conditions(tests) + read_conditions(outside, out_of_domain=True)
    return Demo(train, validation, load_domains(folder), conditions, choose_k(len(train), train.n_classes))


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
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", CalibrationWarning)
        calibrators = {name: demo.fit(name) for name in track(METHODS, "fitting")}
    given = [str(warning.message) for warning in caught if issubclass(warning.category, CalibrationWarning)]
    table = evaluate_conditions(calibrators, demo.conditions, n_resamples=n_resamples)
    return DemoResult(demo, table, calibrators, list(dict.fromkeys(given)))
