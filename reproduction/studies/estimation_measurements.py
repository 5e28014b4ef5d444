"""Measure CIFAR-10 networks for the study of accuracy without labels, on a CPU in minutes per network.

    python -m reproduction.studies.estimation_measurements NETWORKS --data DATA --weights WEIGHTS --out FOLDER

Half of the test set validates the networks that have no validation set. The test conditions are 2,000 images of the
other half, clean and under every corruption. A network whose folder exists is not measured again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import torch
import typer

from densecal.density.bank import FeatureBank
from reproduction.classifiers import find_classifier
from reproduction.measuring.measurements import MeasuredSet, Measurements
from reproduction.measuring.run import find_weights
from reproduction.networks import load_network
from reproduction.studies.centre_banks import Measured, Sets, measure
from reproduction.studies.estimation import BATCH


def to_measurements(classifier: str, measured: Measured) -> Measurements:
    """Return the logits and the distances to the library's centres of every set."""
    bank = FeatureBank(measured.train)
    distances = torch.as_tensor(bank.distances(measured.features)).cpu().numpy()[:, :, None]
    sets = {
        name: MeasuredSet(measured.logits[rows], distances[rows], measured.labels[rows])
        for name, rows in measured.parts.items()
    }
    return Measurements(classifier, tuple(measured.features), (None,), sets)


def main(
    networks: Annotated[list[str], typer.Argument(help="Names such as c10-resnet20.")],
    data: Annotated[Path, typer.Option(help="The folder of CIFAR-10.")],
    weights: Annotated[Path, typer.Option(help="Folder of CLASSIFIER.safetensors or resnetNN-*.th.")],
    out: Annotated[Path, typer.Option(help="Write a folder per network.")] = Path("runs/estimation"),
    limit: Annotated[int | None, typer.Option(help="Number of images per set, for a trial run.")] = None,
) -> None:
    """Measure networks and save the measurements of each in a folder with its name."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    sets = Sets(data, device, limit, test_size=BATCH)
    for name in networks:
        if (out / name).exists():
            continue
        about = find_classifier(name)
        network = load_network(about, find_weights(about, weights))
        images = {**sets.validation(about), **sets.test()}
        to_measurements(name, measure(about, network, sets.train(about), images)).save(out / name)
        print(name, "measured", flush=True)


if __name__ == "__main__":
    typer.run(main)
