"""Every shift of the committed results as one table: domains, years and styles, and corrupted images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from densecal.calibrators import ORACLE
from reproduction.imagenet.judge import SETTINGS
from reproduction.measuring.measurements import CLEAN
from reproduction.natural.judge import ADAPTED, DEFAULT

ERROR = "accuracy error"
KEY = ["study", "source", "target"]
METHODS = ("ts", DEFAULT, ADAPTED, ORACLE)
NATURAL = {
    "pacs": "PACS: photo, painting, cartoon, sketch",
    "office": "Office-Caltech10: shop, camera, web",
    "digits": "Digits: MNIST, USPS, SVHN",
    "photographs": "Photographs: CIFAR-10 to ImageNet",
    "sentiment": "Reviews: books, films, kitchen, ...",
    "employment": "Employment, 2015 to 2016 ... 2018",
    "electricity": "Electricity prices, later months",
}
CORRUPTED = {
    "cifar10": "CIFAR-10, 18 corruptions",
    "cifar100": "CIFAR-100, 18 corruptions",
    "imagenet": "ImageNet, 18 corruptions",
}
STUDIES = NATURAL | CORRUPTED


def read_results(results: Path) -> pd.DataFrame:
    """Return one row per study, source, target, seed and method; a corrupted set is a target, its network the source.

    Where the target is the source, the data are those of the source that neither train nor fit.
    """
    parts = [pd.read_csv(results / "natural" / f"{study}.csv") for study in NATURAL]
    parts.append(_estimation(pd.read_csv(results / "estimation" / "study.csv.gz")))
    for study in ("cifar100", "imagenet"):
        table = pd.concat(pd.read_csv(path) for path in sorted((results / study).glob("*.csv.gz")))
        if "bank" in table:
            table = table[table["bank"] == next(iter(SETTINGS))]
        parts.append(_corrupted(table, study))
    every = pd.concat(parts, ignore_index=True)
    return every[every["method"].isin(METHODS)]


def _corrupted(table: pd.DataFrame, study: str) -> pd.DataFrame:
    target = table["condition"].where(table["condition"] != CLEAN, table["network"])
    return table.assign(study=study, source=table["network"], target=target, seed=0)


def _estimation(table: pd.DataFrame) -> pd.DataFrame:
    """Return the whole conditions of the networks that no constant was chosen on; the study has no intervals."""
    whole = table[(table["kind"] == "2000 samples") & (table["role"] == "held out")]
    claimed = {"ts": "ts", DEFAULT: "shift fit", ADAPTED: "adapted"}
    parts = [
        whole.assign(
            method=method,
            mean_confidence=whole["densecal" if method == ADAPTED else name],
            ece=whole[f"ece {name}"],
            low=np.nan,
            high=np.nan,
        )
        for method, name in claimed.items()
    ]
    every = pd.concat(parts)
    return _corrupted(every.assign(**{ERROR: (every["mean_confidence"] - every["accuracy"]).abs()}), "cifar10")


def shifted_cases(table: pd.DataFrame) -> pd.DataFrame:
    """Return one row per source and other target, means over the seeds.

    The columns are the accuracy, its drop from the source, and for each method what it claims (``claim METHOD``, the
    mean confidence), how far that is from the accuracy (``off METHOD``), its ECE, and whether the ECE differs
    significantly from that of TS for most seeds (``better METHOD``, ``worse METHOD``).
    """
    values = {"claim": "mean_confidence", "off": ERROR, "ece": "ece"}
    mean = table.groupby([*KEY, "method"], sort=False)[["accuracy", *values.values()]].mean().unstack("method")
    cases = pd.DataFrame({"accuracy": mean["accuracy"]["ts"]})
    verdicts = table.assign(better=table["high"] < 0, worse=table["low"] > 0)
    for method in METHODS:
        for name, column in values.items():
            cases[f"{name} {method}"] = mean[column][method]
        own = verdicts[verdicts["method"] == method].groupby(KEY)[["better", "worse"]].mean() > 0.5
        cases = cases.join(own.add_suffix(f" {method}"))
    cases["judged"] = table.groupby(KEY)["low"].count() > 0
    cases = cases.reset_index()
    clean = cases[cases["source"] == cases["target"]].set_index(["study", "source"])["accuracy"]
    cases["drop"] = clean.loc[list(zip(cases["study"], cases["source"], strict=True))].to_numpy() - cases["accuracy"]
    return cases[cases["source"] != cases["target"]].reset_index(drop=True)
