"""The page of the study of estimates without labels."""

from __future__ import annotations

import pandas as pd

from reproduction.page.tables import markdown

ESTIMATES = {
    "densecal": "densecal",
    "shift fit": "mean confidence, shift fit",
    "ts": "mean confidence, temperature scaling",
    "cbpe": "CBPE",
    "atc": "ATC",
    "doc": "DoC",
}
FITS = {"ts": "temperature scaling", "shift fit": "shift fit", "adapted": "adapted to the batch"}
PAGE = """# Accuracy without labels, and calibration for a batch

CIFAR-10, six networks, 18 corruptions at 5 severities and the clean images, 2,000 images each, distances to 500 centres
per layer. The regression is learned from three perturbed copies of the validation set, grouped by the kind and strength
of the perturbation, so it needs no additional forward pass. Temperature scaling is fitted by NLL. CBPE is an isotonic
calibration per class, as in NannyML; on five conditions of ResNet-20 it differs from nannyml 0.13.1 by at most 0.25
points. `study.csv.gz` contains every batch. Written by `reproduction/studies/estimation.py`.

## How the method was chosen

The features and constants were chosen on {chosen}, two narrow residual networks and a network for
MNIST. About 80 regressions (features, penalties, domains), 45 adaptations and 7 forms of the interval were compared.
Most regressions differ by less than 0.2 points, so the choice among them matters little.

The other networks were held out, with the following reservations. They were evaluated three times before the final run,
and two changes followed from the results: the constant part of the interval's error was lowered from 0.1 to 0.08 (the
mean width had been 16.1 points), and the weight of temperature scaling on nearly clean batches was given a sharper
transition (the in-domain ECE of ResNet18 had been 0.21 points above that of temperature scaling). The estimated
accuracies did not change after the first evaluation. Another ResNet18 with the same recipe was used in the first
comparisons. The error that does not depend on the shift, the variance of the validation set and the prior error were
set on text and tables under natural shift, where the intervals had been too narrow; therefore those data do not test
the intervals. Later, the share of the correction that is applied (0.8 instead of 1), the smallest domain (15 samples
instead of 50), the penalty on slopes of early layers and the additional variance for few validation samples were set
with the natural shifts, c10-resnet20 and c10-vgg16 in view. This made the estimates here 0.1 points worse and those
under natural shift better (`results/natural/README.md`).

Since then, the share of the correction depends on how far the domains reach, a batch is distinguished from clean data
by its standard error, a clean batch keeps a fit that does not increase the NLL, and the interval has one constant less
and a smaller prior error. These changes were chosen on c10-resnet20, c10-resnet44 and some of the natural shifts, and
confirmed on c10-resnet32, c10-resnet56 and the other natural shifts (`results/natural/README.md`). On the same
measurements, before and after: error on c10-resnet20 2.73 and 2.59 points, c10-resnet44 3.10 and 2.78, c10-resnet32
2.49 and 2.42, c10-resnet56 3.12 and 2.95. Means over the four: batches of 200 3.68 and 3.52, label-shifted 4.29 and
4.25, ALL ECE of the adapted fit relative to temperature scaling 0.407 and 0.395, mixed halves 0.537 and 0.531, width of
the intervals 18.6 and 17.5 points.

Later, the confidence of a small batch is no longer drawn to one half, the intervals widen beyond all domains, and
inputs unlike the batch get the temperatures of the fit. None of it was chosen on these networks; the largest change
here is the in-domain ECE of the adapted fit on c10-resnet20, from +0.24 to +0.17.

Then the regression was made exact on the clean data: on tables, the estimate on the validation set had been up to 5
points off. The error on unknown kinds of shift is the mean square over kinds, without the mixtures that had hidden it,
and counts less above the estimate than below; a promise above clean data that is not believed widens the interval. The
constants were set with c10-resnet20, c10-resnet44, the reviews, the tables, Office-Caltech10 and the photographs of
`results/natural/README.md` in view. c10-resnet32, c10-resnet56, PACS and the digits were looked at once, afterwards.

On the same measurements, before and after: error on c10-resnet20 2.59 and 2.56 points, c10-resnet32 2.42 and 2.47,
c10-resnet44 2.78 and 2.74, c10-resnet56 2.95 and 3.00. The intervals of the four are narrower, 17.5 and 16.7 points on
average, and hold less often: 98.6 and 96.2 % with 2,000 samples, 92.3 and 90.4 % under label shift, where those of
c10-resnet20 and c10-resnet32 are too narrow.

The columns of c10-resnet18 and c10-vgg16 predate these changes and use 300 centres: updating them would require
training the networks again.

## Error of the estimated accuracy in points, 2,000 samples

{large}
## Batches of 200 samples

{small}
## Batches of 500 samples whose class shares are drawn from a Dirichlet distribution (0.3)

{label_shifted}
## The 95 % intervals: share that contains the accuracy, and mean width in points

{intervals}
## ECE x100, ALL (equal weight for severities 0 to 5)

{all}
## ECE in-domain, points above temperature scaling

{in_domain}
## Half clean, half corrupted (severity 3 or 5): mean ECE x100 of the two halves

{mixed}"""


def summary(table: pd.DataFrame) -> str:
    """Return the page with the results of the study."""
    kinds = {str(kind): part for kind, part in table.groupby("kind")}
    large, mixed = kinds["2000 samples"], kinds["mixed halves"]
    return PAGE.format(
        chosen=", ".join(large.loc[large["role"] == "chosen on", "network"].unique()),
        large=_errors(large),
        small=_errors(kinds["200 samples"]),
        label_shifted=_errors(kinds["500 label-shifted"]),
        intervals=_intervals(kinds),
        all=_grid(_fits(large, _all), ".2f") + "\n" + _shares(_fits(large, _all)),
        in_domain=_grid(_fits(large, _in_domain), "+.2f"),
        mixed=_grid(_fits(mixed, _mean), ".2f") + "\n" + _shares(_fits(mixed, _mean)),
    )


def _errors(batches: pd.DataFrame) -> str:
    rows = {}
    for column, name in ESTIMATES.items():
        error = 100 * (batches[column] - batches["accuracy"]).abs()
        rows[name] = error.groupby(batches["network"], sort=False).mean()
    return _grid(_with_means(pd.DataFrame(rows).T, batches), ".2f")


def _intervals(kinds: dict[str, pd.DataFrame]) -> str:
    rows = {}
    for kind in ("2000 samples", "500 label-shifted", "200 samples"):
        part = kinds[kind]
        held = 100 * ((part["low"] <= part["accuracy"]) & (part["accuracy"] <= part["high"]))
        rows[f"{kind}, share"] = held.groupby(part["network"], sort=False).mean()
        rows[f"{kind}, width"] = 100 * (part["high"] - part["low"]).groupby(part["network"], sort=False).mean()
    return _grid(_with_means(pd.DataFrame(rows).T, part), ".1f")


def _fits(batches: pd.DataFrame, of: object) -> pd.DataFrame:
    assert callable(of)
    rows = {
        name: {network: of(part, f"ece {fit}") for network, part in batches.groupby("network", sort=False)}
        for fit, name in FITS.items()
    }
    return _with_means(pd.DataFrame(rows).T, batches)


def _mean(batches: pd.DataFrame, column: str) -> float:
    return float(100 * batches[column].mean())


def _all(batches: pd.DataFrame, column: str) -> float:
    severity = batches["condition"].str.extract(r"-(\d)$")[0].fillna("0")
    return float(100 * batches[column].groupby(severity).mean().mean())


def _in_domain(batches: pd.DataFrame, column: str) -> float:
    clean = batches[batches["condition"] == "clean"]
    return float(100 * (clean[column] - clean["ece ts"]).mean())


def _with_means(rows: pd.DataFrame, batches: pd.DataFrame) -> pd.DataFrame:
    roles = batches.drop_duplicates("network").set_index("network")["role"]
    means = {role: rows[roles.index[roles == role]].mean(axis=1) for role in ("chosen on", "held out")}
    return rows.assign(**means, **{"all six": rows[list(roles.index)].mean(axis=1)})


def _shares(rows: pd.DataFrame) -> str:
    """Return the errors as fractions of temperature scaling's; the means are means of the fractions."""
    networks = [name for name in rows.columns if name.startswith("c10-")]
    shares = rows[networks] / rows.loc[FITS["ts"], networks]
    shares["all six"] = shares.mean(axis=1)
    return _grid(shares.drop(index=FITS["ts"]).rename(index=lambda name: f"{name}, of temperature scaling's"), ".3f")


def _grid(rows: pd.DataFrame, form: str) -> str:
    lines = [[str(name), *(format(value, form) for value in values)] for name, *values in rows.itertuples()]
    return markdown(["", *map(str, rows.columns)], lines)
