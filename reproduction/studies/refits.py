"""How far rounding moves the metrics of DIA and PTS, the methods that train a small network.

    python -m reproduction.studies.refits [--classifier c10-resnet18] [--refits 16] [--output results/refits]

Their objectives have several minima of nearly the same loss, and a fit ends in one of them or near it. Which one
depends on rounding, and therefore on the processor: OpenBLAS and NumPy choose their kernels by it. Every refit
multiplies the validation logits by 1 + e, with e drawn from -2^-24 to 2^-24, the relative rounding error of float32.
The table has the largest difference between two refits: of the metric under one condition (``condition``) and of a mean
over conditions (``mean``), each the largest of all conditions or means, with and without DAC.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import typer

from densecal.metrics import OOD_METRICS
from reproduction.check import SPREAD, means_of
from reproduction.measuring.measurements import VAL, MeasuredSet, Measurements
from reproduction.methods import SMALL_NETWORKS, base_of, with_dac
from reproduction.protocol import ALL_METRICS, Protocol

ROUNDING = 2.0**-24
KEYS = ["base", "metric"]


def perturb(measured: Measurements, seed: int) -> Measurements:
    """Return the measurements with another rounding of the validation logits; seed 0 keeps them."""
    val = measured.sets[VAL]
    noise = np.random.default_rng(seed).uniform(-ROUNDING, ROUNDING, val.logits.shape) if seed else 0.0
    moved = MeasuredSet((val.logits * (1 + noise)).astype(np.float32), val.distances, val.labels)
    return replace(measured, sets={**measured.sets, VAL: moved})


def study(classifier: str, refits: int, results: Path) -> pd.DataFrame:
    """Return the largest difference between refits by base method and metric."""
    measured = Protocol(results).measurements(classifier)
    conditions, means = [], []
    for seed in range(refits):
        protocol = Protocol(results, (*ALL_METRICS, *OOD_METRICS), n_resamples=0)
        protocol._measured[classifier] = perturb(measured, seed)
        table = protocol.table(classifier, with_dac(SMALL_NETWORKS))
        tidy = table.rows().assign(classifier=classifier)
        conditions.append(pd.concat([tidy, table.ood_rows()]))
        columns = ["classifier", "method", "metric", "column"]
        means.append(
            pd.DataFrame([(*key, value) for key, value in means_of(tidy).items()], columns=[*columns, "value"])
        )
        print(f"refit {seed + 1} of {refits}", flush=True)
    found = {
        "condition": _largest_range(conditions, ["method", "metric", "condition", "severity"]),
        "mean": _largest_range(means, ["method", "metric", "column"]),
    }
    return pd.DataFrame(found).reset_index().assign(classifier=classifier)


def _largest_range(refits: list[pd.DataFrame], keys: list[str]) -> pd.Series[float]:
    """Return the largest range over the refits of a value with the same keys, by base method and metric."""
    groups = pd.concat(refits).groupby(keys, dropna=False)["value"]
    ranges = (groups.max() - groups.min()).rename("range").reset_index()
    ranges["base"] = ranges["method"].map(base_of)
    return ranges.groupby(KEYS)["range"].max()


def main(
    classifier: str = "c10-resnet18",
    refits: int = 16,
    results: Path = Path("results"),
    output: Path = Path("results") / SPREAD.parent,
) -> None:
    """Write the table of the study."""
    output.mkdir(parents=True, exist_ok=True)
    study(classifier, refits, results).to_csv(output / SPREAD.name, index=False, float_format="%.3g")


if __name__ == "__main__":
    typer.run(main)
