"""Accuracy of pretrained CIFAR-10 ResNets on all 90 corrupted conditions; writes results/corruption_accuracy.md.

    python benchmarks/corruption_accuracy.py --networks ../shared/data/cifar10-resnet --data DIR [--device cuda]

DIR contains CIFAR-10 in its official Python layout (`cifar-10-batches-py`).
"""

from __future__ import annotations

import argparse
import json
import pickle
import platform
import time
from pathlib import Path

import numpy as np
import torch

from densecal.shift import CORRUPTIONS, SEVERITIES, corrupt
from reproduction.classifiers import IMAGENET_PIXELS
from reproduction.networks import CifarResNet, load_cifar_resnet

RESULTS = Path(__file__).parent / "results"


def read_test_set(folder: Path) -> tuple[torch.Tensor, torch.Tensor]:
    file = folder / "cifar-10-batches-py" / "test_batch"
    content = pickle.loads(file.read_bytes(), encoding="bytes")
    images = torch.from_numpy(content[b"data"].reshape(-1, 3, 32, 32).copy())
    return images, torch.tensor(content[b"labels"])


@torch.inference_mode()
def accuracy(network: CifarResNet, images: torch.Tensor, labels: torch.Tensor) -> float:
    mean = torch.tensor(IMAGENET_PIXELS[0], device=images.device).view(3, 1, 1)
    std = torch.tensor(IMAGENET_PIXELS[1], device=images.device).view(3, 1, 1)
    hits = 0
    for part, truth in zip(images.split(500), labels.split(500), strict=True):
        hits += int((network((part.float() / 255 - mean) / std).argmax(1) == truth).sum())
    return 100 * hits / len(labels)


def measure(network: CifarResNet, images: torch.Tensor, labels: torch.Tensor) -> dict[str, list[float]]:
    rows = {"clean": [accuracy(network, images, labels)]}
    for name in CORRUPTIONS:
        rows[name] = [accuracy(network, corrupt(images, name, severity), labels) for severity in SEVERITIES]
    return rows


def as_markdown(depth: int, rows: dict[str, list[float]]) -> str:
    lines = [f"### ResNet-{depth}: {rows['clean'][0]:.1f} % on the clean images", ""]
    lines += ["| corruption | family | " + " | ".join(map(str, SEVERITIES)) + " |", "|---|---|" + "---:|" * 5]
    lines += [
        f"| {name} | {each.family} | " + " | ".join(f"{value:.1f}" for value in rows[name]) + " |"
        for name, each in CORRUPTIONS.items()
    ]
    means = np.mean([rows[name] for name in CORRUPTIONS], axis=0)
    lines += ["| **mean** | | " + " | ".join(f"**{value:.1f}**" for value in means) + " |", ""]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=Path, default=Path("../shared/data/cifar10-resnet"))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--count", type=int, default=2000, help="number of test images")
    parser.add_argument("--depths", type=int, nargs="+", default=[20, 32, 44, 56])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=RESULTS / "corruption_accuracy.md")
    options = parser.parse_args()
    images, labels = (part[: options.count].to(options.device) for part in read_test_set(options.data))
    hardware = torch.cuda.get_device_name() if "cuda" in options.device else f"{platform.machine()} CPU"
    text = [
        "## Accuracy under the 18 corruptions",
        "",
        f"Public CIFAR-10 ResNets, top-1 accuracy in percent on the first {len(labels):,} test images, corrupted by "
        f"`densecal.shift.corrupt` (seed 0) at severities 1 to 5. Computed on: {hardware}.",
        "",
    ]
    collected = {}
    for depth in options.depths:
        start = time.perf_counter()
        network = load_cifar_resnet(next(options.networks.glob(f"resnet{depth}-*.th"))).to(options.device)
        rows = measure(network, images, labels)
        collected[depth] = rows
        text.append(as_markdown(depth, rows))
        print(f"ResNet-{depth}: {time.perf_counter() - start:.0f} s")
        print(text[-1])
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text("\n".join(text))
    options.out.with_suffix(".json").write_text(json.dumps(collected, indent=1) + "\n")


if __name__ == "__main__":
    main()
