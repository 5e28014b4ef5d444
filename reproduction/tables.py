"""The paper's tables and their reproduction: one row per number, with the paper's value, ours and its interval."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from densecal.calibrators import DAC_NAME as DAC
from densecal.calibrators import ORACLE, UNCALIBRATED
from densecal.evaluation import EvaluationTable
from densecal.metrics import Interval
from reproduction.methods import ADDITIONAL, EVERY_METHOD, MAIN, PUBLISHED, with_dac
from reproduction.protocol import CLASSWISE_OF_PAPER, Protocol
from reproduction.published import published_numbers

COLUMNS = ["classifier", "method", "column", "paper", "ours", "low", "high"]
CALIBRATING_DISTRIBUTION = tuple(method for method in MAIN if method != "spl")
"""SPL calibrates only the top-1 confidence, so the paper reports no metrics of the distribution for it."""

MEAN, ALL, IN_DOMAIN, SEVERITY_5, RATIO = "mean", "all", "in-domain", "severity-5", "ratio"
OVER: Mapping[str, dict[str, Any]] = {
    IN_DOMAIN: {"severity": 0},
    SEVERITY_5: {"severity": 5},
    ALL: {},
    MEAN: {"mean_over": "conditions"},
}
"""The mean in each column: ``all`` weights the six severities equally, ``mean`` all conditions."""


@dataclass(frozen=True)
class MeanTable:
    """A table of one metric's mean: its name in `published_numbers`, the base methods, and the paper's scale."""

    title: str
    published: str
    metric: str
    methods: tuple[str, ...] = MAIN
    scale: float = 100.0


MEAN_TABLES: Mapping[str, MeanTable] = {
    "table1": MeanTable("Mean ECE over all conditions", "ece", "ece"),
    "brier": MeanTable("Mean Brier score over all conditions", "brier", "brier", CALIBRATING_DISTRIBUTION, 1.0),
    "additional": MeanTable("Mean ECE over all conditions, more methods", "ece-additional", "ece", ADDITIONAL),
    "ece-mass": MeanTable("Mean ECE with bins of equal mass", "ece-mass", "ece_mass"),
    "ece-kde": MeanTable("Mean ECE from kernel density estimates", "ece-kde", "ece_kde"),
    "classwise-ece": MeanTable(
        "Mean class-wise ECE (sum over classes)", "classwise-ece", CLASSWISE_OF_PAPER, CALIBRATING_DISTRIBUTION
    ),
    "nll": MeanTable("Mean negative log-likelihood", "nll", "nll", CALIBRATING_DISTRIBUTION, 1.0),
}


def mean_table(protocol: Protocol, rows: Sequence[str], table: MeanTable) -> pd.DataFrame:
    """Compare one of the paper's mean tables with ours.

    The paper states that it averages over severities 0 to 5, but its numbers match a mean over all 91 conditions (ALL
    in table 2 is the mean over severities: see the reproduction page). The column "mean" is the mean over conditions,
    for a fair comparison, and "all" the mean over the six severities.
    """
    paper = published_numbers(table.published)
    found = []
    for row in rows:
        methods = _measurable(protocol, row, (UNCALIBRATED, *with_dac(table.methods), ORACLE))
        evaluated = protocol.table(row, methods)
        for method in methods:
            for column in (MEAN, ALL):
                mean = evaluated.estimate(method, table.metric, **OVER[column])
                found.append((row, method, column, paper.get((row, method, column)), *_scaled(mean, table.scale)))
    return pd.DataFrame(found, columns=COLUMNS)


def _measurable(protocol: Protocol, row: str, methods: Sequence[str]) -> list[str]:
    """Remove the published code's variant if the distances to the first neighbour were not measured."""
    first = 1 in protocol.measurements(row).ks
    return [method for method in methods if first or not method.startswith(PUBLISHED)]


def delta_table(protocol: Protocol, rows: Sequence[str], methods: Sequence[str], published: str) -> pd.DataFrame:
    """Compare the change of the ECE with DAC: in-domain, at severity 5, over all, and in percent of the ECE without.

    The paper's ratio is close to the mean of the relative gains per severity; ours is the relative gain of the mean.
    """
    paper = published_numbers(published)
    found = []
    for row in rows:
        evaluated = protocol.table(row, with_dac(methods))
        for base in methods:
            for before in (DAC, PUBLISHED):
                for column, value in _changes(evaluated, f"{before}+{base}", base):
                    number = paper.get((row, base, column)) if before == DAC else None
                    found.append((row, f"{before}+{base}", column, number, *value))
    return pd.DataFrame(found, columns=COLUMNS)


def _changes(table: EvaluationTable, after: str, base: str) -> Iterator[tuple[str, tuple[float, float, float]]]:
    for column in (IN_DOMAIN, SEVERITY_5, ALL):
        yield column, _scaled(table.difference(after, base, "ece", **OVER[column]), 100)
    ratio = -100 * table.difference(after, base).estimate / table.estimate(base).estimate
    yield RATIO, (ratio, float("nan"), float("nan"))


def effect_table(protocol: Protocol, rows: Sequence[str]) -> pd.DataFrame:
    """Return the change of each method's ECE with DAC and its paired interval, for four means."""
    paper = published_numbers("ece")
    found = []
    for row in rows:
        evaluated = protocol.table(row, with_dac(MAIN))
        for base in MAIN:
            for column, over in OVER.items():
                change = _scaled(evaluated.difference(f"{DAC}+{base}", base, "ece", **over), 100)
                after, before = (paper.get((row, method, column)) for method in (f"{DAC}+{base}", base))
                number = None if after is None or before is None else after - before
                found.append((row, base, column, number, *change))
    return pd.DataFrame(found, columns=COLUMNS)


def ood_table(protocol: Protocol, rows: Sequence[str]) -> pd.DataFrame:
    """Return how well confidence detects out-of-domain sets; the paper has ImageNet against ObjectNet."""
    paper = published_numbers("ood")
    methods = (UNCALIBRATED, *with_dac(MAIN))
    found = []
    for row in rows:
        evaluated = protocol.table(row, methods)
        for method in methods:
            for condition in evaluated.out_of_domain:
                for metric in evaluated.ood_metrics:
                    number = paper.get((row, method, metric)) if condition.name.startswith("objectnet") else None
                    value = _scaled(evaluated.ood_estimate(method, condition.name, metric), 100)
                    found.append((row, method, f"{condition.name}: {metric}", number, *value))
    return pd.DataFrame(found, columns=COLUMNS)


def accuracy_table(protocol: Protocol, rows: Sequence[str]) -> pd.DataFrame:
    """Return each classifier's accuracy by severity, and its change with each method."""
    methods = (UNCALIBRATED, *with_dac(MAIN + ADDITIONAL))
    found = []
    for row in rows:
        evaluated = protocol.table(row, methods)
        for method in methods:
            for column in (IN_DOMAIN, SEVERITY_5, ALL):
                if method == UNCALIBRATED:
                    value = evaluated.estimate(method, "accuracy", **OVER[column])
                else:
                    value = evaluated.difference(method, UNCALIBRATED, "accuracy", **OVER[column])
                found.append((row, method, column, None, *_scaled(value, 100)))
    return pd.DataFrame(found, columns=COLUMNS)


def conditions_table(protocol: Protocol, rows: Sequence[str]) -> pd.DataFrame:
    """Return the tidy table: one row per classifier, method, condition and metric, with intervals."""
    parts = []
    for row in rows:
        tidy = protocol.table(row, EVERY_METHOD).rows().drop(columns="n_samples")
        level = tidy["severity"].astype(str)
        tidy["condition"] = tidy["condition"].where(tidy["severity"] == 0, tidy["condition"] + "-" + level)
        parts.append(tidy.assign(classifier=row))
    table = pd.concat(parts, ignore_index=True)
    return table[["classifier", *(column for column in table if column != "classifier")]]


def _scaled(interval: Interval, scale: float) -> tuple[float, float, float]:
    return interval.estimate * scale, interval.low * scale, interval.high * scale
