"""The page of the centres study."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from reproduction.page.markdown import markdown
from reproduction.page.tables import frame_table

PAGE = """# Centres or training samples: the bank of the shift fit

ECE x100, CIFAR-10, six networks, 18 corruptions at 5 severities and the clean images, 5,000 test images each. ALL is
the mean over the six severities. The reference bank contains all 50,000 (ResNet18 and VGG16: 45,000) training samples
and measures the distance to the 50th nearest. The other banks contain centres of spherical k-means per layer and
measure the distance to the nearest centre. Unless the name says otherwise, k-means starts from random training samples
and runs 12 iterations on all of them; each value is the mean over 3 seeds. The default was chosen on
{chosen}; the other networks were held out. `study.csv` contains every bank, seed and fit. Written by
`reproduction/studies/centres.py`. The CIFAR-10 tables predate the penalty on slopes of early layers, which changes ALL
by at most 0.06 on ResNet20, ResNet32, ResNet56 and VGG16 (training samples, 300 and 1,000 centres).

## ALL, shift fit

{all}
## ALL, points above all training samples

{difference}
## In-domain, points above all training samples

{in_domain}
## Confirmed on 100 classes

The default was fixed before these runs. CIFAR-100, 10,000 test images per condition, `hundred_classes.csv`.

{confirmed}
## Spread of ALL over the seeds (largest minus smallest)

{spread}
## The paper's clean fit: ALL

{clean}
## The paper's clean fit: in-domain

{clean_in_domain}"""
ALL, IN_DOMAIN = "ece, all", "ece, in-domain"
REFERENCE = "all rows, k=50"


def summary(table: pd.DataFrame, confirmed: pd.DataFrame, chosen_on: Sequence[str]) -> str:
    shift, clean = (_with_baseline(table, fit) for fit in ("shift", "clean"))
    held_out = [name for name in dict.fromkeys(table["network"]) if name not in chosen_on]
    groups = {"chosen on": [name for name in shift[ALL].columns if name in chosen_on], "held out": held_out}
    return PAGE.format(
        chosen=", ".join(groups["chosen on"]),
        all=_grid(shift[ALL], groups, ".2f"),
        difference=_grid(_above_reference(shift[ALL]), groups, "+.2f"),
        in_domain=_grid(_above_reference(shift[IN_DOMAIN]), groups, "+.2f"),
        confirmed=_confirmed(confirmed),
        spread=_grid(shift["spread"].drop(index=[REFERENCE]), groups, ".2f"),
        clean=_grid(clean[ALL], groups, ".2f"),
        clean_in_domain=_grid(clean[IN_DOMAIN], groups, ".2f"),
    )


def _with_baseline(table: pd.DataFrame, fit: str) -> dict[str, pd.DataFrame]:
    """Return grids of bank by network, in the order of the table: means over the seeds, and their range."""
    part = table[table["fit"].isin([fit, "ts"])].assign(
        bank=lambda rows: rows["bank"].where(rows["fit"] == fit, "temperature scaling")
    )
    grouped = part.groupby(["bank", "network"], sort=False)
    order = list(dict.fromkeys(part["bank"])), list(dict.fromkeys(part["network"]))
    grids = {column: grouped[column].mean().unstack() for column in (ALL, IN_DOMAIN)}
    grids["spread"] = (grouped[ALL].max() - grouped[ALL].min()).unstack().drop(index="temperature scaling")
    return {name: grid.loc[[bank for bank in order[0] if bank in grid.index], order[1]] for name, grid in grids.items()}


def _above_reference(grid: pd.DataFrame) -> pd.DataFrame:
    return grid.sub(grid.loc[REFERENCE]).drop(index=REFERENCE)


def _grid(grid: pd.DataFrame, groups: dict[str, list[str]], form: str) -> str:
    means = {name: grid[members].mean(axis=1) for name, members in groups.items() if members}
    return frame_table(grid.assign(**means).rename(index=_bank_label), form)


def _bank_label(bank: str) -> str:
    """Return the name of a bank in words: the tables call training samples rows."""
    return bank.replace("rows", "training samples")


def _confirmed(table: pd.DataFrame) -> str:
    names = {"ts": "temperature scaling", "shift": "shift fit", "clean": "clean fit"}
    lines = [
        [
            row["network"],
            names[row["fit"]],
            "" if row["fit"] == "ts" else _bank_label(row["bank"]),
            f"{row[ALL]:.2f}",
            f"{row[IN_DOMAIN]:.2f}",
        ]
        for _, row in table.iterrows()
    ]
    return markdown(["network", "fit", "bank", "ALL", "in-domain"], lines)
