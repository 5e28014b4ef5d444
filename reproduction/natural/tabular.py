"""Tables over time: employment in Massachusetts (ACS, 2015 to 2018) and electricity prices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from densecal.shift import table_domains
from reproduction.measuring.measurements import CLEAN, PERTURBED, VAL, Measurements
from reproduction.natural.vector_network import Floats, Labels, Vectors, measure_vectors, split_rows, train_network


class Table(NamedTuple):
    """The columns of a period before they are encoded, and the labels."""

    columns: pd.DataFrame
    labels: Labels

    def rows(self, chosen: Labels) -> Table:
        return Table(self.columns.iloc[chosen], self.labels[chosen])


def _measure_periods(
    name: str, seed: int, periods: dict[str, Table], encode: Callable[[pd.DataFrame], Floats]
) -> Measurements:
    """Train on a random part of the first period; the others are the targets."""
    first = next(iter(periods))
    parts = split_rows(len(periods[first].labels), seed, 0.2, 0.2)
    val, test, train = (periods[first].rows(rows) for rows in parts)
    sets = {VAL: val, CLEAN: test, **{target: table for target, table in periods.items() if target != first}}
    for domain, columns in table_domains(val.columns, seed=seed).items():
        sets[f"{PERTURBED}{domain}"] = Table(columns, val.labels)
    learned = Vectors(encode(train.columns), train.labels)
    vectors = {key: Vectors(encode(table.columns), table.labels) for key, table in sets.items()}
    return measure_vectors(f"{name}-{first}-{seed}", train_network(learned, 2, seed), learned, vectors)


def electricity(data: Path, seed: int) -> Iterator[Measurements]:
    """Train on the first sixth of the price series (7,552 half hours) and evaluate on the other five.

    The prices and the demand of Victoria and the transfer are left out: they are constant in the first third.
    """
    table = pd.read_csv(data / "elec.csv")
    whole = Table(table[["period", "nswprice", "nswdemand"]], table["class"].to_numpy(np.int64))
    parts = np.array_split(np.arange(len(table)), 6)
    periods = {f"part{number}": whole.rows(rows) for number, rows in enumerate(parts, start=1)}
    yield _measure_periods("electricity", seed, periods, lambda columns: np.array(columns, np.float32))


def employment(data: Path, seed: int) -> Iterator[Measurements]:
    """Train on 2015 and evaluate on 2016 to 2018, at most 10,000 people each; requires pyarrow."""
    later = pd.read_parquet(data / "employment_MA_analysis.pq")
    target = pd.read_parquet(data / "employment_MA_analysis_target.pq")
    table = pd.concat([pd.read_parquet(data / "employment_MA_reference.pq"), later.merge(target, on="id")])
    columns = table[[name for name in table.columns if name.isupper()]].astype(str).astype({"AGEP": float})
    values = {name: sorted(set(columns[name])) for name in columns if name != "AGEP"}

    def encode(chosen: pd.DataFrame) -> Floats:
        one_hot = [np.asarray(chosen[name], str)[:, None] == known for name, known in values.items()]
        return np.concatenate([chosen[["AGEP"]].to_numpy(), *one_hot], axis=1).astype(np.float32)

    whole, years = Table(columns, table["employed"].to_numpy(np.int64)), table["year"].to_numpy()
    draw = np.random.default_rng(seed)
    periods = {
        f"year{year}": whole.rows(draw.permutation(np.flatnonzero(years == year))[:10_000])
        for year in (2015, 2016, 2017, 2018)
    }
    yield _measure_periods("employment", seed, periods, encode)
