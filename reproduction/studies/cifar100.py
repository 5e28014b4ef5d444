"""Evaluate the default and its adaptation on the paper's CIFAR-100 networks under 91 conditions.

    python -m reproduction.studies.cifar100 [NETWORKS] --measurements FOLDER [--out results/cifar100]

FOLDER holds the measurements of each network (``python -m reproduction.measuring NETWORK --perturbed``), which are too
large for the repository. No constant was chosen on these networks.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from densecal.outputs import Outputs
from densecal.shift import plan_perturbations
from reproduction.measuring.measurements import Measurements
from reproduction.measuring.run import PERTURBATIONS
from reproduction.natural.judge import fit_all
from reproduction.studies.corruptions import judge_conditions, write_judged
from reproduction.studies.shift_fit import DEFAULT_MIX, draw_families

NETWORKS = ("c100-resnet18", "c100-vgg16", "c100-densenet121")


def shifted_domains(measured: Measurements) -> dict[str, Outputs]:
    """Return the default mix of perturbations, composed of sets of a single family, by kind and strength."""
    parts, names = [], []
    for family, outputs, rows in draw_families(measured, DEFAULT_MIX, k=None):
        parts.append(outputs[rows])
        names.append(plan_perturbations(rows, 0, **PERTURBATIONS[family][0]).domains())
    return Outputs.concatenate(parts).split(np.concatenate(names))


def main(
    networks: Annotated[list[str] | None, typer.Argument(help="Measured networks; by default all three.")] = None,
    measurements: Annotated[Path, typer.Option(help="A folder per network.")] = Path("results/measurements"),
    out: Path = Path("results/cifar100"),
) -> None:
    """Write NETWORK.csv.gz, every condition, and NETWORK-means.csv, with intervals."""
    for name in networks or NETWORKS:
        measured = Measurements.load(measurements / name)
        fitted = fit_all(measured, shifted_domains(measured), measured.about.k)
        write_judged(out, name, *judge_conditions(measured, fitted))
        print(name, "done", flush=True)


if __name__ == "__main__":
    typer.run(main)
