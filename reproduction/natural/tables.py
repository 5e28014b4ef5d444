"""Tables over time: employment in Massachusetts (ACS, 2015 to 2018) and electricity prices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from reproduction.measuring.measurements import CLEAN, VAL, Measurements
from reproduction.natural.heads import (
    Floats,
    Vectors,
    by_domain,
    domain_names,
    measure_vectors,
    split_rows,
    train_network,
)

Groups = Sequence[NDArray[np.int64]]
"""The encoded columns of each column of a table: several for a category."""


def perturbed_tables(data: Vectors, groups: Groups, seed: int) -> dict[str, Vectors]:
    """Return copies with noise, with values of other rows, and with missing values, in a random share of columns.

    A copy is divided into domains by that share.
    """
    draw = np.random.default_rng(seed)
    domains = {}
    for kind in ("noise", "shuffled", "missing"):
        inputs = data.inputs.copy()
        others = inputs[draw.permutation(len(inputs))]
        share = draw.uniform(size=len(inputs))
        for columns in groups:
            rows = np.flatnonzero(draw.uniform(size=len(inputs)) < share)
            place = np.ix_(rows, columns)
            if kind == "shuffled":
                inputs[place] = others[place]
            elif kind == "missing":
                # A category without a value is all zero; a number is replaced by its mean.
                inputs[place] = 0 if len(columns) > 1 else data.inputs[:, columns].mean(axis=0)
            elif len(columns) == 1:
                inputs[place] += draw.normal(size=(len(rows), 1)) * data.inputs[:, columns].std(axis=0)
        for name, rows in by_domain(domain_names(kind, share)).items():
            domains[name] = Vectors(inputs[rows], data.labels[rows])
    return domains


def _measure_periods(name: str, seed: int, periods: dict[str, Vectors], groups: Groups) -> Measurements:
    """Train on a random part of the first period; the others are the targets."""
    first = next(iter(periods))
    inputs, labels = periods[first]
    val, test, train = (Vectors(inputs[rows], labels[rows]) for rows in split_rows(len(labels), seed, 0.2, 0.2))
    network = train_network(train, 2, seed)
    targets = {name: data for name, data in periods.items() if name != first}
    sets = {VAL: val, CLEAN: test, **perturbed_tables(val, groups, seed), **targets}
    return measure_vectors(f"{name}-{first}-{seed}", network, train, sets)


def electricity(data: Path, seed: int) -> Iterator[Measurements]:
    """Train on the first sixth of the price series (7,552 half hours) and judge on the five that follow.

    The prices and the demand of Victoria and the transfer are left out: they are constant in the first third.
    """
    table = pd.read_csv(data / "elec.csv")
    inputs = table[["period", "nswprice", "nswdemand"]].to_numpy(np.float32)
    labels = table["class"].to_numpy(np.int64)
    parts = np.array_split(np.arange(len(labels)), 6)
    periods = {f"part{number}": Vectors(inputs[rows], labels[rows]) for number, rows in enumerate(parts, start=1)}
    groups = [np.array([column]) for column in range(inputs.shape[1])]
    yield _measure_periods("electricity", seed, periods, groups)


def employment(data: Path, seed: int, limit: int = 10_000) -> Iterator[Measurements]:
    """Train on 2015 and judge on 2016 to 2018, ``limit`` people each; needs pyarrow."""
    later = pd.read_parquet(data / "employment_MA_analysis.pq")
    target = pd.read_parquet(data / "employment_MA_analysis_target.pq")
    table = pd.concat([pd.read_parquet(data / "employment_MA_reference.pq"), later.merge(target, on="id")])
    columns = [name for name in table.columns if name.isupper() or name == "RAC1P"]
    parts, groups, width = [], [], 0
    for name in columns:
        values = table[[name]] if name == "AGEP" else pd.get_dummies(table[name].astype(str))
        parts.append(values.to_numpy(np.float32))
        groups.append(np.arange(width, width := width + values.shape[1]))
    inputs: Floats = np.concatenate(parts, axis=1)
    labels, years = (table[name].to_numpy(np.int64) for name in ("employed", "year"))
    draw = np.random.default_rng(seed)
    periods = {}
    for year in (2015, 2016, 2017, 2018):
        rows = draw.permutation(np.flatnonzero(years == year))[:limit]
        periods[f"year{year}"] = Vectors(inputs[rows], labels[rows])
    yield _measure_periods("employment", seed, periods, groups)
