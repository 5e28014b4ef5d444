"""Measure what `calibrate` costs on a CPU beyond the forward passes: a pretrained ResNet-20 and CIFAR-10.

    python benchmarks/calibrate_cpu.py --data CIFAR_FOLDER --weights resnet20.th

CPU time in one run: all of `calibrate`, and loading and plain forward passes for as many images.
"""

from __future__ import annotations

import argparse
import time
from itertools import cycle
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Subset, TensorDataset

from densecal.shift.datasets.cifar import CIFAR10
from densecal.torch import calibrate
from reproduction.networks import load_cifar_resnet

RESULTS = Path(__file__).parent / "results"
MEAN, STD = (torch.tensor(values).view(3, 1, 1) for values in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
VALIDATION = 5_000
BATCH = 256


class Counted(torch.nn.Module):
    """A classifier that normalises its images and counts them."""

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self.network, self.images = network, 0

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.images += len(images)
        logits: torch.Tensor = self.network((images - MEAN) / STD)
        return logits


def read(folder: Path, split: str) -> TensorDataset:
    data = CIFAR10(folder, split=split)
    images = torch.from_numpy(data.images).permute(0, 3, 1, 2).float().div(255).contiguous()
    return TensorDataset(images, torch.from_numpy(data.labels).long())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--train", type=int, default=45_000)
    given = parser.parse_args()
    model = Counted(load_cifar_resnet(given.weights)).eval()
    train, test = read(given.data, "train"), read(given.data, "test")
    loaders = [
        DataLoader(Subset(data, range(count)), BATCH) for data, count in ((train, given.train), (test, VALIDATION))
    ]
    start = time.process_time()
    calibrated = calibrate(model, *loaders, progress=False)
    whole, n_images = time.process_time() - start, model.images
    model.images = 0
    start = time.process_time()
    with torch.inference_mode():
        for loader in cycle(loaders):
            for images, _ in loader:
                if model.images >= n_images:
                    break
                model(images)
            if model.images >= n_images:
                break
    forward = (time.process_time() - start) * n_images / model.images
    text = (
        "## calibrate on the CPU\n\n"
        f"ResNet-20, CIFAR-10: {given.train:,} training and {VALIDATION:,} validation images; "
        f"bank: {calibrated.choices['bank']}.\n\n"
        "| images through the classifier | forward passes, CPU s | all of calibrate, CPU s | ratio | at most |\n"
        "|---|---|---|---|---|\n"
        f"| {n_images:,} | {forward:.1f} | {whole:.1f} | {whole / forward:.3f}x | 1.1x |\n"
    )
    print(text)
    (RESULTS / "calibrate_cpu.md").write_text(text)


if __name__ == "__main__":
    main()
