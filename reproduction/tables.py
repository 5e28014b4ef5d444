"""The paper's tables, each beside its reproduction: one row a number, paper and ours, with our interval."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from densecal.calibrators.names import ORACLE, UNCALIBRATED
from densecal.metrics import Interval
from densecal.progress import track
from reproduction.classifiers import CLASSIFIERS
from reproduction.methods import ADDITIONAL, DAC, MAIN, PUBLISHED
from reproduction.protocol import ECE_ONLY, Protocol
from reproduction.published import published_numbers
from reproduction.results import MethodResult, Over

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("classifier", "method", "column", "paper", "ours", "low", "high")
CALIBRATING_DISTRIBUTION = tuple(method for method in MAIN if method != "spl")


@dataclass(frozen=True)
class MeanTable:
    """A table of one measure's mean over all conditions.

    Attributes
    ----------
    published : str
        Its name in `published_numbers`.
    measure : str
        What is averaged.
    methods : tuple of str
        The base methods that the paper's table has.
    scale : float
        What the paper multiplies the measure with.
    """

    title: str
    published: str
    measure: str
    methods: tuple[str, ...] = MAIN
    scale: float = 100.0


MEAN_TABLES: Mapping[str, MeanTable] = {
    "table1": MeanTable("Mean ECE over all conditions", "ece", "ece"),
    "brier": MeanTable("Mean Brier score over all conditions", "brier", "brier", CALIBRATING_DISTRIBUTION, 1.0),
    "additional": MeanTable("Mean ECE over all conditions, more methods", "ece-additional", "ece", ADDITIONAL),
    "ece-mass": MeanTable("Mean ECE with bins of equal mass", "ece-mass", "ece_mass"),
    "ece-kde": MeanTable("Mean ECE from kernel density estimates", "ece-kde", "ece_kde"),
    "classwise-ece": MeanTable(
        "Mean class-wise ECE (sum over classes)", "classwise-ece", "classwise_ece_paper", CALIBRATING_DISTRIBUTION
    ),
    "nll": MeanTable("Mean negative log-likelihood", "nll", "nll", CALIBRATING_DISTRIBUTION, 1.0),
}


def with_dac(methods: Iterable[str]) -> tuple[str, ...]:
    """Return methods, the same after DAC, and the same after DAC as the published code computes it.

    Examples
    --------
    >>> with_dac(["ts"])
    ('ts', 'dac+ts', 'published+ts')
    """
    methods = tuple(methods)
    return tuple(f"{before}{method}" for before in ("", f"{DAC}+", f"{PUBLISHED}+") for method in methods)


def mean_table(protocol: Protocol, rows: Sequence[str], table: MeanTable) -> pd.DataFrame:
    """Compare one of the paper's mean tables with ours.

    The paper's text says that severity 0 to 5 are averaged; its own numbers fit a mean over all 91 conditions instead
    (table 2's ALL is the mean over severities: see the reproduction page). ``column`` "mean" is that mean, for a fair
    comparison; "all" is the mean over the six severities.
    """
    import pandas as pd

    paper = published_numbers(table.published)
    found = []
    for row in rows:
        first = 1 in protocol.measurements(row).ks
        for method in track((UNCALIBRATED, *with_dac(table.methods), ORACLE), row):
            if method.startswith(PUBLISHED) and not first:
                continue  # the first neighbour's distances were not kept
            result = protocol.result(row, method, measures=(table.measure,), out_of_domain=False)
            for column in ("mean", "all"):
                number = paper.get((row, method, column))
                found.append(
                    (row, method, column, number, *_scaled(result.estimate(table.measure, column), table.scale))
                )
    return pd.DataFrame(found, columns=list(COLUMNS))


DELTA_COLUMNS: Mapping[str, Over] = {"in-domain": 0, "severity-5": 5, "all": "all"}


def delta_table(protocol: Protocol, rows: Sequence[str], methods: Sequence[str], published: str) -> pd.DataFrame:
    """Compare what DAC changes: in-domain, at severity 5 and over all, and the ratio (per cent of the ECE without).

    The paper's ratio is near the mean of the severities' relative gains; ours is the gain of the mean.
    """
    import pandas as pd

    paper = published_numbers(published)
    found = []
    for row in rows:
        for base in track(methods, row):
            without = protocol.result(row, base, **ECE_ONLY)
            for before in (DAC, PUBLISHED):
                after = protocol.result(row, f"{before}+{base}", **ECE_ONLY)
                for column, over in DELTA_COLUMNS.items():
                    number = paper.get((row, base, column)) if before == DAC else None
                    change = _scaled(after.difference(without, "ece", over), 100)
                    found.append((row, f"{before}+{base}", column, number, *change))
                ratio = -100 * after.difference(without).estimate / without.estimate().estimate
                number = paper.get((row, base, "ratio")) if before == DAC else None
                found.append((row, f"{before}+{base}", "ratio", number, ratio, float("nan"), float("nan")))
    return pd.DataFrame(found, columns=list(COLUMNS))


def ood_table(protocol: Protocol, rows: Sequence[str]) -> pd.DataFrame:
    """Measure how well confidence tells out-of-domain sets apart; the paper has ImageNet against ObjectNet."""
    import pandas as pd

    paper = published_numbers("ood")
    found = []
    for row in rows:
        for method in track((UNCALIBRATED, *with_dac(MAIN)), row):
            result = protocol.result(row, method, measures=())
            for name, measures in result.ood.items():
                for measure in measures:
                    number = paper.get((row, method, measure)) if name.startswith("objectnet") else None
                    value = _scaled(result.ood_estimate(name, measure), 100)
                    found.append((row, method, f"{name}: {measure}", number, *value))
    return pd.DataFrame(found, columns=list(COLUMNS))


def accuracy_table(protocol: Protocol, rows: Sequence[str]) -> pd.DataFrame:
    """Show each classifier's accuracy by severity, and by how much each method changes it."""
    import pandas as pd

    found = []
    for row in rows:
        only: dict[str, Any] = {"measures": ("accuracy",), "out_of_domain": False}
        plain = protocol.result(row, UNCALIBRATED, **only)
        for method in track((UNCALIBRATED, *with_dac(MAIN + ADDITIONAL)), row):
            result = protocol.result(row, method, **only)
            for column, over in (("in-domain", 0), ("severity-5", 5), ("all", "all")):
                interval = result.estimate("accuracy", over)  # type: ignore[arg-type]
                if method != UNCALIBRATED:
                    interval = result.difference(plain, "accuracy", over)  # type: ignore[arg-type]
                found.append((row, method, column, None, *_scaled(interval, 100)))
    return pd.DataFrame(found, columns=list(COLUMNS))


def _scaled(interval: Interval, scale: float) -> tuple[float, float, float]:
    return interval.estimate * scale, interval.low * scale, interval.high * scale


def pivot(table: pd.DataFrame, column: str, value: Callable[[Any], str]) -> pd.DataFrame:
    """Lay one column of a comparison out as the paper does: classifiers down, methods across.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = [("c10-resnet18", "ts", "mean", 4.96, 5.1, 5.0, 5.2)]
    >>> pivot(pd.DataFrame(rows, columns=COLUMNS), "mean", lambda row: f"{row.ours:.1f}").values.tolist()
    [['5.1']]
    """
    chosen = table[table["column"] == column]
    cells = chosen.assign(cell=[value(row) for row in chosen.itertuples()])
    wide = cells.pivot(index="classifier", columns="method", values="cell")
    order = list(dict.fromkeys(chosen["classifier"]))
    wide = wide.loc[order, list(dict.fromkeys(chosen["method"]))]
    return wide.rename(index={name: CLASSIFIERS[name].label for name in order if name in CLASSIFIERS})


def dac_helps(protocol: Protocol, row: str, base: str, over: Over = "all") -> tuple[MethodResult, Interval]:
    """Return a method with DAC, and the paired change of its ECE against the method without."""
    after = protocol.result(row, f"{DAC}+{base}", **ECE_ONLY)
    return after, after.difference(protocol.result(row, base, **ECE_ONLY), "ece", over)
