"""Compare banks of centres with banks of training samples under shift, on six networks.

    python -m reproduction.studies.centres --data DATA --weights WEIGHTS    # measure and write results/centres (GPU)
    python -m reproduction.studies.centres --page                           # print the page of results/centres again
    python -m reproduction.studies.centres --page --confirm MEASUREMENTS    # confirm on 100 classes, without a GPU

`--confirm` takes the folder of the measurements of a network with its perturbed sets, and may be repeated. The default
of `FeatureBank` (number of centres, iterations, start and training samples per centre) was chosen on CHOSEN_ON; the
results include the other networks.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
import torch
import typer

import densecal
from densecal.calibrators.base import Calibrator
from densecal.density.defaults import MAX_CENTRES
from densecal.evaluation import Condition, evaluate_conditions
from densecal.outputs import Outputs
from reproduction.classifiers import find_classifier
from reproduction.measuring.measurements import PERTURBED, VAL, Measurements, as_condition, labelled_sets
from reproduction.measuring.run import find_weights
from reproduction.methods import quiet_fits
from reproduction.networks import load_network
from reproduction.studies.centre_banks import LIBRARY, BankSpec, Measured, Sets, measure
from reproduction.studies.centres_page import summary
from reproduction.studies.shift_fit import CHOSEN_ON, DEFAULT_MIX, PRETRAINED, draw_perturbed

NETWORKS = (*PRETRAINED, "c10-resnet18", "c10-vgg16")
COUNTS = (30, 100, 200, 300, 500, 1000, 2000)
VARIED = (300, 1000)
SEEDS = (0, 1, 2)
METRICS = ("ece", "nll", "brier", "accuracy")
ROWS = BankSpec(k=50)
TABLE, CONFIRMED = "study.csv", "hundred_classes.csv"


def bank_specs() -> list[BankSpec]:
    """Return the banks of the study: every number of centres, then variations of one choice at a time."""
    variations: list[dict[str, Any]] = [
        *({"iterations": count} for count in (4, 30)),
        {"init": "k-means++"},
        *({"rows_per_centre": rows} for rows in (32, 64, 128)),
        {"init": LIBRARY},
    ]
    specs = [
        *(BankSpec(centres=count) for count in COUNTS),
        *(BankSpec(centres=count, **one) for count in VARIED for one in variations),
        BankSpec(rows=1000, k=5),
    ]
    return [ROWS, *(replace(spec, seed=seed) for seed in SEEDS for spec in specs)]


def judge(network: str, spec: BankSpec | None, sets: Mapping[str, Outputs]) -> pd.DataFrame:
    """Fit on one bank's distances and evaluate every condition; without a bank, fit temperature scaling."""
    val, shifted = sets[VAL], [one for name, one in sets.items() if name.startswith(PERTURBED)]
    fits: dict[str, Calibrator]
    with quiet_fits():
        if spec is None:
            fits = {"ts": densecal.TemperatureScaling(loss="nll").fit(val)}
        else:
            fits = {"shift": densecal.DAC().fit(val, shifted=shifted), "clean": densecal.DAC().fit(val)}
    table = pd.DataFrame(_rows(fits, [as_condition(name, sets[name]) for name in labelled_sets(sets)]))
    bank, seed = ("none", 0) if spec is None else (str(spec), spec.seed)
    about: dict[str, Any] = {"network": network, "bank": bank, "seed": seed}
    return table.assign(**about)[[*about, *table.columns]]


def confirm(folder: Path) -> pd.DataFrame:
    """Return the same table of a network that was measured before: the rows of the paper, and the library's centres."""
    measured = Measurements.load(folder)
    rows, centres = BankSpec(k=measured.about.k), BankSpec(centres=MAX_CENTRES, init=LIBRARY)
    found = []
    for spec, k in ((None, rows.k), (rows, rows.k), (centres, None)):
        sets = {name: measured.outputs(name, k) for name in (VAL, *labelled_sets(measured.sets))}
        copies = enumerate(draw_perturbed(measured, DEFAULT_MIX, k=k))
        sets |= {f"{PERTURBED}{number}": outputs for number, outputs in copies}
        found.append(judge(measured.classifier, spec, sets))
    return pd.concat(found, ignore_index=True)


def _rows(fits: dict[str, Calibrator], conditions: Sequence[Condition]) -> Iterator[dict[str, Any]]:
    found = evaluate_conditions(fits, conditions, metrics=METRICS, uncalibrated=False, n_resamples=0)
    for fit, calibrator in fits.items():
        kept = bool(getattr(calibrator, "shift_fitted", False))
        for number, condition in enumerate(found.conditions):
            values = {metric: float(found.values[fit, metric][number]) for metric in METRICS}
            yield {"fit": fit, "kept": kept, "condition": condition.name, "severity": condition.severity, **values}


def study(
    name: str, measured: Measured, specs: Iterable[BankSpec], pool: ProcessPoolExecutor
) -> Iterator[Future[pd.DataFrame]]:
    """Measure the distances to every bank of one network; yield the fits, which run in the pool."""
    for spec in (None, *specs):
        yield pool.submit(judge, name, spec, measured.outputs(spec))


def summarise(conditions: pd.DataFrame) -> pd.DataFrame:
    """Return one row per network, bank, seed and fit: in-domain and ALL, the mean over six severities."""
    keys = ["network", "bank", "seed", "fit"]
    levels = conditions.groupby([*keys, "severity"], sort=False)[list(METRICS)].mean().reset_index()
    clean = levels[levels["severity"] == 0].set_index(keys)[list(METRICS)]
    everything = levels.groupby(keys, sort=False)[list(METRICS)].mean()
    kept = conditions.groupby(keys, sort=False)["kept"].first()
    table = everything.add_suffix(", all").join(clean.add_suffix(", in-domain")).join(kept)
    for column in table.columns:
        if column.startswith(("ece", "accuracy")):
            table[column] *= 100
    return table.round(4).reset_index()


def run(networks: Sequence[str], data: Path, weights: Path) -> pd.DataFrame:
    """Measure the networks and return one row per network, bank, seed, fit and condition."""
    sets = Sets(data, torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1", MKL_NUM_THREADS="1")  # of each process
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        pending: list[Future[pd.DataFrame]] = []
        for name in networks:
            about = find_classifier(name)
            network = load_network(about, find_weights(about, weights))
            images = {**sets.validation(about), **sets.test()}
            pending += study(name, measure(about, network, sets.train(about), images), bank_specs(), pool)
        return pd.concat([each.result() for each in pending], ignore_index=True)


def main(
    networks: Annotated[list[str] | None, typer.Argument(help="Networks to measure; by default all six.")] = None,
    data: Annotated[Path, typer.Option(help="The folder of CIFAR-10.")] = Path("data"),
    weights: Annotated[Path, typer.Option(help="CLASSIFIER.safetensors, resnetNN-*.th.")] = Path("results/weights"),
    out: Path = Path("results/centres"),
    confirmed: Annotated[
        list[Path] | None, typer.Option("--confirm", help="Folders of measurements, to confirm the choice on.")
    ] = None,
    page: Annotated[bool, typer.Option(help="Keep study.csv.")] = False,
) -> None:
    """Write the tables and README.md of the study, and print the page."""
    out.mkdir(parents=True, exist_ok=True)
    if not page:
        summarise(run(networks or NETWORKS, data, weights)).to_csv(out / TABLE, index=False)
    if confirmed:
        summarise(pd.concat(map(confirm, confirmed))).to_csv(out / CONFIRMED, index=False)
    text = summary(pd.read_csv(out / TABLE), pd.read_csv(out / CONFIRMED), CHOSEN_ON)
    (out / "README.md").write_text(text)
    print(text)


if __name__ == "__main__":
    typer.run(main)
