"""The page of results: four networks, their methods and banks, and the comparison with temperature scaling."""

from __future__ import annotations

import pandas as pd

from reproduction.imagenet.judge import METHODS, NEAREST_ROW, SETTINGS
from reproduction.measuring.measurements import CLEAN
from reproduction.natural.judge import ADAPTED, DEFAULT
from reproduction.natural.page import grid
from reproduction.page.tables import markdown, number
from reproduction.studies.corruptions import ALL

FIRST = next(iter(SETTINGS))
PAGE = """# ImageNet networks under corruptions

EfficientNet-Lite0, 1 and 2 and the ResNet-50 of Keras on ImageNet's 1,000 classes. Of the five validation images of
each class one is held out, two are for the fit and two are judged: 2,000 images, clean and under the 18 corruptions
with ImageNet's constants at severities 1, 3 and 5. Images are corrupted at 224x224 and enlarged for Lite1 (240) and
Lite2 (260), as in ImageNet-C. *all* is the mean over the severities 0, 1, 3 and 5.

`ts` is fitted by NLL. `dac` is the paper's: the distance to the tenth of 1,000 images, one per class. `{nearest}` has
the distance to the nearest, which corresponds to the paper's tenth of 12,800. `default` is the shift fit on distances
to centres, with three perturbed copies of the images to fit on; `adapted` is the same adapted to all inputs of a
condition without their labels, `oracle` temperature scaling fitted on the condition's labels. Intervals are bootstrap
intervals (95 %) over images, paired for differences. Written by `python -m reproduction.imagenet page`.

## All severities

{methods}
Mean of the ratios to the ECE of `ts` over the networks: {ratios}.
`default` is significantly worse than `ts` on {worse} of {conditions} conditions and better on {better};
`adapted` on {adapted_worse} and {adapted_better}.

## ECE x100 by severity

{severities}
## Estimated and true accuracy: mean absolute difference of mean confidence and accuracy, in points

{accuracy}
## Where the bank comes from

`train`: 1,000 training images. `held-out`: the 1,000 validation images that neither fit nor judge. With training images
in the bank these are free for the fit: `train, fit on more` has 3,000 instead of 2,000. ECE x100 over all severities:

{banks}
{cost}
"""


def summary(single: pd.DataFrame, means: pd.DataFrame) -> str:
    """Return the page from the rows of single conditions and their means."""
    ours = single[single["bank"] == FIRST]
    overall = means[means["severity"] == ALL]
    first = overall[overall["bank"] == FIRST]
    n_conditions = len(ours[["network", "condition"]].drop_duplicates())
    verdicts = ours.assign(worse=ours["low"] > 0, better=ours["high"] < 0).groupby("method")[["worse", "better"]].sum()
    return PAGE.format(
        nearest=NEAREST_ROW,
        methods=_methods(first, _accuracy_errors(ours)),
        ratios=", ".join(f"`{method}` {ratio:.3f}" for method, ratio in _ratios(first).items()),
        conditions=n_conditions,
        worse=verdicts.loc[DEFAULT, "worse"],
        better=verdicts.loc[DEFAULT, "better"],
        adapted_worse=verdicts.loc[ADAPTED, "worse"],
        adapted_better=verdicts.loc[ADAPTED, "better"],
        severities=grid(means[means["bank"] == FIRST], ["network", "severity"], "ece", METHODS),
        accuracy=grid(_accuracy_errors(ours), ["network"], "accuracy error", METHODS),
        banks=grid(overall, ["network", "bank"], "ece", METHODS),
        cost=_cost(overall),
    )


def _accuracy_errors(single: pd.DataFrame) -> pd.DataFrame:
    """Return the mean errors over the conditions of each severity, then over severities."""
    severity = single["condition"].where(single["condition"] != CLEAN, "0").str.rpartition("-")[2]
    key = ["network", "method"]
    columns = ["accuracy", "accuracy error"]
    by_severity = single.assign(severity=severity).groupby([*key, "severity"], sort=False)[columns].mean()
    return by_severity.groupby(key, sort=False).mean().reset_index()


def _ratios(overall: pd.DataFrame) -> pd.Series[float]:
    wide = overall.pivot_table(index="network", columns="method", values="ece", sort=False)[list(METHODS)]
    return wide.div(wide["ts"], axis=0).mean()


def _methods(overall: pd.DataFrame, errors: pd.DataFrame) -> str:
    lines = [
        [
            row["network"],
            row["method"],
            _percent(row["ece"], row["ece low"], row["ece high"]),
            _percent(row["ece minus ts"], row["low"], row["high"], sign=True),
            f"{row['brier']:.4f}",
            f"{row['nll']:.4f}",
            f"{100 * row['accuracy error']:.2f}",
        ]
        for row in overall.merge(errors[["network", "method", "accuracy error"]]).to_dict("records")
    ]
    header = ["network", "method", "ECE x100 [95 %]", "minus `ts` [95 %]", "Brier", "NLL", "accuracy off by, points"]
    return markdown(header, lines)


def _percent(value: float, low: float, high: float, *, sign: bool = False) -> str:
    shown, *ends = (number(100 * each, sign=sign) for each in (value, low, high))
    return f"{shown} [{', '.join(ends)}]"


def _cost(overall: pd.DataFrame) -> str:
    """Say what each way to spend the images does to the mean ECE over the networks."""
    mean = 100 * overall.groupby(["bank", "method"])["ece"].mean()
    banks = list(dict.fromkeys(overall["bank"]))
    said = [
        f"`{method}` " + ", ".join(f"{mean[bank, method]:.2f} ({bank})" for bank in banks)
        for method in ("dac", DEFAULT, ADAPTED)
    ]
    return f"Mean over the networks: {'; '.join(said)}."
