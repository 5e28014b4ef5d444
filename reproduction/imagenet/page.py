"""The page of results: four networks, their methods and banks, and the comparison with temperature scaling."""

from __future__ import annotations

import pandas as pd

from reproduction.imagenet.judge import METHODS, NEAREST_ROW, SETTINGS
from reproduction.measuring.measurements import CLEAN
from reproduction.natural.judge import ADAPTED, DEFAULT
from reproduction.natural.page import grid
from reproduction.page.markdown import markdown
from reproduction.page.tables import interval
from reproduction.studies.corruptions import ALL

FIRST = next(iter(SETTINGS))
PAGE = """# ImageNet networks under corruptions

EfficientNet-Lite0, 1 and 2 and the ResNet-50 of Keras on the 1,000 classes of ImageNet. There are five validation
images per class: one is held out, two are used for the fit and two for the evaluation. The 2,000 evaluation images are
used clean and under the 18 corruptions with ImageNet's constants at severities 1, 3 and 5. Images are corrupted at
224x224 and enlarged for Lite1 (240) and Lite2 (260), as in ImageNet-C. *all* is the mean over the severities 0, 1, 3
and 5.

`ts` is fitted by NLL. `dac` is the method of the paper, with the distance to the tenth nearest of 1,000 images, one per
class. `{nearest}` uses the distance to the nearest image, which corresponds to the tenth nearest of 12,800 in the
paper. `default` is the shift fit on distances to centres, with three perturbed copies of the fit images; `adapted` is
`default` adapted to all inputs of a condition, without labels; `oracle` is temperature scaling fitted on the labels of
the condition. Intervals are 95 % bootstrap intervals over images, paired for differences. Written by
`python -m reproduction.imagenet page`.

## All severities

{methods}
Mean ratio to the ECE of `ts` over the networks: {ratios}.
`default` is significantly worse than `ts` on {worse} of {conditions} conditions and better on {better};
`adapted` is worse on {adapted_worse} and better on {adapted_better}.

## ECE x100 by severity

{severities}
## Estimated and true accuracy: mean absolute difference of mean confidence and accuracy, in points

{accuracy}
## Images in the bank

`train`: the bank contains 1,000 training images. `held-out`: it contains the 1,000 validation images that are used
neither for the fit nor for the evaluation. With training images in the bank, the held-out images can be used for the
fit: `train, fit on more` is fitted on 3,000 images instead of 2,000. ECE x100 over all severities:

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
            interval(*(100 * row[column] for column in ("ece", "ece low", "ece high"))),
            interval(*(100 * row[column] for column in ("ece minus ts", "low", "high")), sign=True),
            f"{row['brier']:.4f}",
            f"{row['nll']:.4f}",
            f"{100 * row['accuracy error']:.2f}",
        ]
        for row in overall.merge(errors[["network", "method", "accuracy error"]]).to_dict("records")
    ]
    header = ["network", "method", "ECE x100 [95 %]", "minus `ts` [95 %]", "Brier", "NLL", "accuracy off by, points"]
    return markdown(header, lines)


def _cost(overall: pd.DataFrame) -> str:
    """Return the mean ECE over the networks for each use of the images."""
    mean = 100 * overall.groupby(["bank", "method"])["ece"].mean()
    banks = list(dict.fromkeys(overall["bank"]))
    said = [
        f"`{method}` " + ", ".join(f"{mean[bank, method]:.2f} ({bank})" for bank in banks)
        for method in ("dac", DEFAULT, ADAPTED)
    ]
    return f"Mean over the networks: {'; '.join(said)}."
