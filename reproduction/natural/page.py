"""The page of results: every study, source and target, and the comparison with temperature scaling."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from reproduction.natural.judge import DEFAULT, METHODS
from reproduction.page.markdown import markdown

KEY = ["study", "source", "target"]
PAGE = """# Natural shifts

Each network is trained on one domain (source) and evaluated on others (targets); calibrators are fitted only on the
source. Values are means over the seeds. `ts` is fitted by NLL; `dac` is the method of the paper (distance to the tenth
nearest training sample); `default` is the shift fit on distances to centres; `adapted` is `default` adapted to all
inputs of the target, without labels; `oracle` is temperature scaling fitted on the labels of the target. A difference
to `ts` is significant if the paired 95 % bootstrap interval excludes zero for most of the seeds.
Written by `python -m reproduction.natural page`.

![ECE of temperature scaling and of the default on every pair](pairs.svg)

## Targets: means over the pairs of source and target

{studies}
ECE relative to `ts`, mean of the ratios over {pairs} pairs: {ratios}.
Ratio of the means: {overall}.
`default` is significantly worse than `ts` on {worse} of them ({share:.0%}) and significantly better on {better}.

## In-domain ECE x100

{clean}
## ECE x100 of every target

{all}
## Estimated and true accuracy, in points: mean absolute difference of mean confidence and accuracy

{accuracy}{outside}"""


def by_pair(table: pd.DataFrame) -> pd.DataFrame:
    """Return the ECE of each method on each source and other target, and whether the default differs from TS."""
    shifted = table[table["source"] != table["target"]]
    ece = shifted.pivot_table(index=KEY, columns="method", values="ece", sort=False)
    ours = shifted[shifted["method"] == DEFAULT].assign(worse=lambda t: t["low"] > 0, better=lambda t: t["high"] < 0)
    return ece.join(ours.groupby(KEY)[["worse", "better"]].mean() > 0.5).reset_index()


def summary(table: pd.DataFrame, outside: Sequence[pd.DataFrame]) -> str:
    mean = table.groupby([*KEY, "method"], sort=False).mean(numeric_only=True).reset_index()
    shifted, clean = (mean[(mean["source"] == mean["target"]) == same] for same in (False, True))
    pairs = by_pair(table)
    return PAGE.format(
        studies=_by_study(shifted),
        ratios=", ".join(f"`{method}` {(pairs[method] / pairs['ts']).mean():.3f}" for method in METHODS),
        overall=", ".join(f"`{method}` {pairs[method].mean() / pairs['ts'].mean():.3f}" for method in METHODS),
        pairs=len(pairs),
        worse=pairs["worse"].sum(),
        better=pairs["better"].sum(),
        share=pairs["worse"].mean(),
        clean=grid(clean, ["study", "source"], "ece"),
        all=grid(shifted, KEY, "ece"),
        accuracy=grid(shifted, ["study"], "accuracy error"),
        outside=_outside(outside),
    )


def _by_study(table: pd.DataFrame) -> str:
    columns = ["ece", "brier", "nll", "accuracy error"]
    mean = table.groupby(["study", "method"], sort=False)[columns].mean()
    lines = [
        [*key, f"{100 * ece:.2f}", f"{brier:.4f}", f"{nll:.4f}", f"{100 * error:.2f}"]
        for key, (ece, brier, nll, error) in zip(mean.index, mean.to_numpy(), strict=True)
    ]
    return markdown(["study", "method", "ECE x100", "Brier", "NLL", "accuracy off by, points"], lines)


def grid(table: pd.DataFrame, index: list[str], value: str, methods: Sequence[str] = METHODS) -> str:
    """Return the accuracy and a value x100 of each method, one row per entry of the index."""
    methods = [method for method in methods if method in set(table["method"])]
    wide = table.pivot_table(index=index, columns="method", values=value, sort=False)[methods]
    accuracy = table.pivot_table(index=index, values="accuracy", sort=False)["accuracy"]
    lines = [
        [
            *map(str, key if isinstance(key, tuple) else (key,)),
            f"{100 * accuracy[key]:.1f}",
            *(f"{100 * v:.2f}" for v in values),
        ]
        for key, values in zip(wide.index, wide.to_numpy(), strict=True)
    ]
    return markdown([*index, "accuracy", *methods], lines)


def _outside(tables: Sequence[pd.DataFrame]) -> str:
    if not tables:
        return ""
    mean = pd.concat(tables).groupby(["study", "target", "method"], sort=False).mean(numeric_only=True)
    mean = mean.drop(columns="seed")
    lines = [
        [*key, *(f"{100 * value:.2f}" for value in values)]
        for key, values in zip(mean.index, mean.to_numpy(), strict=True)
    ]
    return "\n## Out-of-domain sets, x100\n\n" + markdown(["study", "set", "method", *mean.columns], lines)
