"""Measure the cost of `calibrate` on a CPU beyond the forward passes, with a pretrained ResNet-20 on CIFAR-10.

    python benchmarks/calibrate_cpu.py --data CIFAR_FOLDER --weights resnet20.th

Every batch that `calibrate` passes through the classifier also passes through a copy without hooks, before or after it
in turn. The forward passes are the CPU time of the copy. All the rest is what `calibrate` takes: the classifier with
its hooks, loading, perturbing, pooling, the checks, k-means and the fit. Training, validation and perturbed images all
need a forward pass. One thread, because the CPU time of several includes their waiting for each other.
"""

from __future__ import annotations

import argparse
import copy
from pathlib import Path

import torch
from threadpoolctl import threadpool_limits
from torch.utils.data import DataLoader, Subset, TensorDataset

from bench import timed, write_section
from densecal.shift import CIFAR10
from densecal.torch import calibrate
from reproduction.classifiers import IMAGENET_PIXELS, find_classifier
from reproduction.networks import load_network
from reproduction.page.markdown import markdown

MEAN, STD = (torch.tensor(values).view(3, 1, 1) for values in IMAGENET_PIXELS)
VALIDATION = 5_000
BATCH = 256


class Compared(torch.nn.Module):
    """A classifier that normalises its images, counts them, and times a copy of itself on them."""

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self.network = network
        self.copies = (copy.deepcopy(network).eval(),)  # in a tuple, which hides it from the search for layers
        self.n_batches, self.n_images, self.seconds = 0, 0, 0.0

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.n_batches += 1
        self.n_images += len(images)
        if self.n_batches % 2:
            self._time(images)
        logits: torch.Tensor = self.network((images - MEAN) / STD)
        if not self.n_batches % 2:
            self._time(images)
        return logits

    def _time(self, images: torch.Tensor) -> None:
        self.seconds += timed(lambda: self.copies[0]((images - MEAN) / STD)).cpu


def read(folder: Path, split: str) -> TensorDataset:
    data = CIFAR10(folder, split=split)
    images = torch.from_numpy(data.images).permute(0, 3, 1, 2).float().div(255).contiguous()
    return TensorDataset(images, torch.from_numpy(data.labels).long())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--weights", type=Path, required=True)
    parser.add_argument("--train", type=int, default=50_000)
    given = parser.parse_args()
    torch.set_num_threads(1)
    model = Compared(load_network(find_classifier("c10-resnet20"), given.weights)).eval()
    train, test = read(given.data, "train+val"), read(given.data, "test")
    loaders = [
        DataLoader(Subset(data, range(count)), BATCH) for data, count in ((train, given.train), (test, VALIDATION))
    ]
    with threadpool_limits(1):
        run = timed(lambda: calibrate(model, *loaders, progress=False))
    whole = run.cpu - model.seconds
    times = [f"{model.seconds:.1f}", f"{whole:.1f}", f"{whole / model.seconds:.3f}x"]
    write_section(
        "calibrate_cpu",
        "## calibrate on the CPU",
        f"ResNet-20, CIFAR-10: {given.train:,} training and {VALIDATION:,} validation images, one thread; "
        f"bank: {run.result.choices['bank']},\nfrom 64 training images per centre. The forward passes are those of "
        "a copy without hooks on the same batches. The rest is loading, perturbing,\npooling, k-means, the checks and "
        "the fit. Written by `python benchmarks/calibrate_cpu.py --data CIFAR_FOLDER --weights resnet20.th`.",
        markdown(
            ["images through the classifier", "forward passes, CPU s", "all of calibrate, CPU s", "ratio", "at most"],
            [[f"{model.n_images:,}", *times, "1.1x"]],
        ),
    )


if __name__ == "__main__":
    main()
