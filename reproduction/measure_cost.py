"""Time the steps of a fit, and a sample's inference, with a trained CIFAR-10 ResNet18 on this machine.

    python -m reproduction.measure_cost.py --cifar10 DIR --weights FILE... --results results --out results/tables

FILEs are the pieces that ``run_on_gpu.py pack-weights`` wrote.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch

from densecal.io.storage import whole_file
from densecal.shift import CIFAR10
from reproduction.classifiers import find_classifier
from reproduction.cost import whole_cost
from reproduction.packing import unpack_weights
from reproduction.protocol import Protocol

NAME = "c10-resnet18"


def main() -> None:
    """Time and write cost-steps.csv."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cifar10", type=Path, required=True)
    parser.add_argument("--weights", type=Path, nargs="+", required=True)
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--out", type=Path, default=Path("results/tables"))
    arguments = parser.parse_args()
    classifier = find_classifier(NAME)
    network = classifier.build()
    network.load_state_dict(unpack_weights(sorted(arguments.weights)))
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in classifier.pixels)
    images = {
        split: (torch.from_numpy(CIFAR10(arguments.cifar10, split).images).permute(0, 3, 1, 2) / 255 - mean) / std
        for split in ("train", "val")
    }
    measured = Protocol(arguments.results).measurements(NAME)
    table = whole_cost(
        network.eval(), images["train"], images["val"], measured, layers=classifier.layers, k=classifier.k
    )
    with whole_file(arguments.out / "cost-steps.csv") as temporary:
        table.to_csv(temporary, index=False, float_format="%.4g")


if __name__ == "__main__":
    main()
