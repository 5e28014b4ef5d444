"""Accuracy of pretrained CIFAR-10 ResNets on all 90 corrupted conditions; writes results/corruption_accuracy.md.

    python benchmarks/corruption_accuracy.py --networks FOLDER --data DIR [--device cuda]

FOLDER contains the weights (`resnet20-*.th`, ...), DIR CIFAR-10 in its official Python layout (`cifar-10-batches-py`).
"""

from __future__ import annotations

import argparse
import platform
from pathlib import Path

import numpy as np
import torch
from torch import nn

from bench import write_section
from densecal.shift import CIFAR10, CORRUPTIONS, SEVERITIES, corrupt
from reproduction.classifiers import Classifier, find_classifier
from reproduction.measuring.run import find_weights
from reproduction.networks import load_network
from reproduction.page.markdown import markdown

DEPTHS = (20, 32, 44, 56)
IMAGES = 2_000


@torch.inference_mode()
def accuracy(network: nn.Module, about: Classifier, images: torch.Tensor, labels: torch.Tensor) -> float:
    hits = 0
    for part, truth in zip(images.split(500), labels.split(500), strict=True):
        hits += int((network(about.normalise(part)).argmax(1) == truth).sum())
    return 100 * hits / len(labels)


def as_markdown(depth: int, clean: float, corrupted: dict[str, list[float]]) -> str:
    rows = [[name, CORRUPTIONS[name].family, *(f"{value:.1f}" for value in of)] for name, of in corrupted.items()]
    means = np.mean(list(corrupted.values()), axis=0)
    rows.append(["**mean**", "", *(f"**{value:.1f}**" for value in means)])
    title = f"### ResNet-{depth}: {clean:.1f} % on the clean images"
    return f"{title}\n\n{markdown(['corruption', 'family', *map(str, SEVERITIES)], rows, n_text=2)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    pixels, targets = CIFAR10(options.data, "test").batch(range(IMAGES))
    images, labels = torch.from_numpy(pixels).to(options.device), torch.from_numpy(targets).to(options.device)
    hardware = torch.cuda.get_device_name() if "cuda" in options.device else f"{platform.machine()} CPU"
    parts = [
        "## Accuracy under the 18 corruptions",
        f"Public CIFAR-10 ResNets, top-1 accuracy in percent on the first {IMAGES:,} test images, corrupted by "
        f"`densecal.shift.corrupt` (seed 0) at severities 1 to 5. Computed on: {hardware}. Written by "
        "`python benchmarks/corruption_accuracy.py --networks FOLDER --data DIR`.",
    ]
    for depth in DEPTHS:
        about = find_classifier(f"c10-resnet{depth}")
        network = load_network(about, find_weights(about, options.networks)).to(options.device)
        corrupted = {
            name: [accuracy(network, about, corrupt(images, name, severity), labels) for severity in SEVERITIES]
            for name in CORRUPTIONS
        }
        parts.append(as_markdown(depth, accuracy(network, about, images, labels), corrupted))
        print(parts[-1], flush=True)
    write_section("corruption_accuracy", *parts)


if __name__ == "__main__":
    main()
