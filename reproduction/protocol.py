"""The paper's protocol: fit on the clean validation set, evaluate on every test set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from densecal.calibrators import ORACLE, UNCALIBRATED
from densecal.display import track
from densecal.evaluation import EvaluationTable, evaluate_conditions
from densecal.evaluation.evaluate import FEWEST_RESAMPLES
from densecal.metrics import METRICS, Metric
from reproduction.classifiers import CLASSIFIERS, find_classifier
from reproduction.measuring.measurements import VAL, Measurements
from reproduction.methods import fit_method, neighbour_of

CLASSWISE_OF_PAPER = "classwise_ece_paper"
"""Class-wise ECE as in the paper's table: 14 bins (15 edges), summed over the classes."""
OWN_METRICS: Mapping[str, Metric] = {
    CLASSWISE_OF_PAPER: replace(
        METRICS["classwise_ece_sum"], name=CLASSWISE_OF_PAPER, options={"n_bins": 14, "reduction": "sum"}
    )
}
ALL_METRICS = ("ece", "ece_mass", "ece_kde", "accuracy", "brier", "nll", "classwise_ece", CLASSWISE_OF_PAPER)
N_RESAMPLES = 200
"""Bootstrap resamples of the committed tables. The same number gives the same intervals."""
SLOW = {"ece_kde": 5, "ece_mass": 2}
"""Metrics that need a pass over all samples per resample; their number of resamples is divided by this factor."""
ALL_LAYERS = "-all-layers"

Setting = tuple[int | None, tuple[str, ...] | None, float, int]
PAPER_SETTING: Setting = (None, None, 1.0, 0)


@dataclass
class Protocol:
    """Evaluate methods on measured classifiers; each method is fitted and evaluated once.

    ``folder`` contains ``measurements/CLASSIFIER/*.safetensors``. Methods are evaluated with ``metrics`` in the paper's
    settings, and with the ECE in other settings.
    """

    folder: str | Path
    metrics: Sequence[str] = ("ece",)
    n_resamples: int = N_RESAMPLES
    _measured: dict[str, Measurements] = field(default_factory=dict, repr=False)
    _tables: dict[tuple[str, Setting], EvaluationTable] = field(default_factory=dict, repr=False)

    @property
    def classifiers(self) -> tuple[str, ...]:
        """The classifiers with measurements."""
        root = Path(self.folder) / "measurements"
        return tuple(path.name for path in sorted(root.glob("*")) if any(path.glob("*.safetensors")))

    def rows(self, *, in_paper: bool = True) -> tuple[str, ...]:
        """Return the measured classifiers of the paper in its order, or those that are not in the paper."""
        there = self.classifiers
        return tuple(name for name, one in CLASSIFIERS.items() if name in there and one.in_paper == in_paper)

    def measurements(self, row: str) -> Measurements:
        """Return a classifier's measurements; without a validation set, half of the test set replaces it."""
        if row not in self._measured:
            folder = Path(self.folder) / "measurements" / row
            if not folder.is_dir():
                needs = find_classifier(row.removesuffix(ALL_LAYERS))
                raise FileNotFoundError(
                    f"{row} has not been measured: {folder} does not exist. Pass the folder with the {needs.dataset} "
                    f"data (--data) to measure it; its weights: {needs.weights}."
                )
            measured = Measurements.load(folder)
            self._measured[row] = measured if VAL in measured.sets else measured.with_validation_from_test()
        return self._measured[row]

    def table(
        self,
        row: str,
        methods: Iterable[str],
        *,
        k: int | None = None,
        layers: Sequence[str] | None = None,
        fraction: float = 1.0,
        draw: int = 0,
    ) -> EvaluationTable:
        """Return an evaluation of these methods; it may contain more methods from earlier calls.

        By default DAC uses the paper's k and layers. ``fraction`` is the share of the validation set to fit on, and
        ``draw`` the seed of its random choice. With a fraction below 1 there are no intervals.
        """
        key = (row, (k, None if layers is None else tuple(layers), fraction, draw))
        known = self._tables.get(key)
        missing = [method for method in methods if known is None or method not in known.methods]
        own_k = self.measurements(row).about.k if k is None else k
        metrics = self.metrics if key[1] == PAPER_SETTING else ("ece",)
        n_resamples = self.n_resamples if fraction == 1 else 0
        for neighbour in dict.fromkeys(neighbour_of(method, own_k) for method in missing):
            group = [method for method in missing if neighbour_of(method, own_k) == neighbour]
            found = replace(self._evaluate(row, group, neighbour, key[1], metrics, n_resamples), predictions={})
            known = found if known is None else known.join(found)
        if known is None:
            raise ValueError("methods must have at least one name, got none.")
        self._tables[key] = known
        return known

    def predictions(self, row: str, methods: Iterable[str]) -> EvaluationTable:
        """Return an evaluation with every sample's confidence, and without intervals."""
        k = self.measurements(row).about.k
        return self._evaluate(row, list(methods), k, PAPER_SETTING, ("accuracy",), 0)

    def _evaluate(
        self, row: str, methods: Sequence[str], k: int, setting: Setting, metrics: Sequence[str], n_resamples: int
    ) -> EvaluationTable:
        measured = self.measurements(row)
        _, layers, fraction, draw = setting
        rows = _draw_rows(len(measured.sets[VAL]), fraction, draw)
        wanted = [method for method in methods if method not in (UNCALIBRATED, ORACLE)]
        fitted = {m: fit_method(m, measured, k=k, layers=layers, rows=rows) for m in track(wanted, f"{row}: fitting")}
        outside = measured.out_of_domain(k, layers) if setting == PAPER_SETTING else []
        return evaluate_conditions(
            fitted,
            [*measured.conditions(k, layers), *outside],
            metrics=[OWN_METRICS.get(metric, metric) for metric in metrics],
            uncalibrated=UNCALIBRATED in methods,
            oracle=ORACLE in methods,
            n_resamples={metric: resamples_of(metric, n_resamples) for metric in metrics},
        )


def resamples_of(metric: str, n_resamples: int) -> int:
    """Return the number of resamples of a metric: fewer for slow ones, none if there are none."""
    return max(FEWEST_RESAMPLES, n_resamples // SLOW.get(metric, 1)) if n_resamples else 0


def _draw_rows(count: int, fraction: float, draw: int) -> Any | None:
    if fraction >= 1:
        return None
    return np.sort(np.random.default_rng(draw).choice(count, max(1, round(fraction * count)), replace=False))
