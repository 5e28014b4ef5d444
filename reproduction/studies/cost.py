"""Cost of calibration: seconds for each step of a fit, and the inference time of one sample.

    python -m reproduction.studies.cost --cifar10 DIR --weights FILE --out results/tables

writes cost-steps.csv for the trained CIFAR-10 ResNet18. FILE is its weights.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pandas as pd
import typer

from densecal.calibrators import DAC_NAME as DAC
from densecal.display import track
from densecal.io.atomic_files import atomic_write
from reproduction.classifiers import Classifier, find_classifier
from reproduction.measuring.measurements import CLEAN, VAL, Measurements
from reproduction.methods import fit_method
from reproduction.protocol import Protocol

if TYPE_CHECKING:
    from torch import Tensor, nn

COST_METHODS = (DAC, "dia", "ets", "spl")
"""The methods of the paper's cost table."""
BATCH, INFERENCES = 500, 50


def seconds_of(action: Callable[[], object], repeats: int = 3) -> float:
    """Return the time of the fastest run, in seconds."""
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        best = min(best, time.perf_counter() - start)
    return best


def optimisation_cost(protocol: Protocol, row: str) -> pd.DataFrame:
    """Time the fit and the calibration per sample, given logits and distances."""
    measured = protocol.measurements(row)
    logits, distances = measured.sets[CLEAN].logits, measured.distances(CLEAN, measured.about.k)
    found = []
    for method in track(COST_METHODS, "timing"):
        fit = seconds_of(partial(fit_method, method, measured), repeats=1)
        calibrator = fit_method(method, measured)
        apply = seconds_of(partial(calibrator.predict_proba, logits, distances=distances))
        found.append((method, fit, 1e6 * apply / len(logits)))
    return pd.DataFrame(found, columns=["method", "fit_seconds", "microseconds_a_sample"])


def whole_cost(
    network: nn.Module, classifier: Classifier, images: dict[str, Tensor], measured: Measurements
) -> pd.DataFrame:
    """Time the three steps of the paper's cost table, and the inference of one sample with network and calibrator.

    ``images`` contains the normalised images of the splits ``"train"`` and ``"val"``, and ``measured`` the logits and
    distances to fit on. All columns except ``inference_ms`` are in seconds.
    """
    import torch

    from densecal.density.bank import FeatureBank
    from densecal.torch import extract

    if len(images[VAL]) != len(measured.sets[VAL]):
        raise ValueError("images['val'] must be the images of the measured validation set; the sizes differ.")
    layers = {True: [*classifier.layers, "logits"], False: ["logits"]}
    read = partial(extract, network, progress=False)
    train, train_seconds = _timed(lambda: read(torch.split(images["train"], BATCH), layers[True]))
    bank = FeatureBank(train.features, k=classifier.k)
    _, output_seconds = _timed(lambda: read(torch.split(images[VAL], BATCH), layers[False]))
    val, feature_seconds = _timed(lambda: read(torch.split(images[VAL], BATCH), layers[True]))
    _, search_seconds = _timed(lambda: bank.distances(val.features))
    found = []
    for method in COST_METHODS:
        dense = method == DAC
        calibrator, fit = _timed(partial(fit_method, method, measured))

        def infer(calibrator: Any = calibrator, dense: bool = dense) -> None:
            outputs = read([images[VAL][:1]], layers[dense])
            calibrator.predict_proba(outputs.logits, distances=bank.distances(outputs.features) if dense else None)

        first = train_seconds if dense else float("nan")
        second = feature_seconds + search_seconds if dense else output_seconds
        total = second + fit + (train_seconds if dense else 0.0)
        found.append((method, first, second, fit, total, 1000 * seconds_of(infer, INFERENCES)))
    names = ["method", "train_features", "validation_outputs", "optimisation", "total", "inference_ms"]
    return pd.DataFrame(found, columns=names)


def _timed(action: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    result = action()
    return result, time.perf_counter() - start


def main(
    cifar10: Annotated[Path, typer.Option(help="The folder of CIFAR-10.")],
    weights: Annotated[Path, typer.Option(help="The weights of c10-resnet18.")],
    results: Path = Path("results"),
    out: Path = Path("results/tables"),
) -> None:
    """Time the steps of a fit and the inference of one sample on this machine, and write cost-steps.csv."""
    import torch

    from densecal.shift import open_dataset
    from reproduction.networks import load_network

    about = find_classifier("c10-resnet18")
    images = {}
    for split in ("train", VAL):
        dataset = open_dataset(about.dataset, cifar10, split)
        images[split] = about.normalise(torch.from_numpy(dataset.batch(range(len(dataset)))[0]))
    table = whole_cost(load_network(about, weights), about, images, Protocol(results).measurements(about.name))
    with atomic_write(out / "cost-steps.csv") as temporary:
        table.to_csv(temporary, index=False, float_format="%.4g")


if __name__ == "__main__":
    typer.run(main)
