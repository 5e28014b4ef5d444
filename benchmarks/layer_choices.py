"""Write a table of the layers that densecal selects automatically and of the paper's layers, for the documentation.

python benchmarks/layer_choices.py -o benchmarks/results/layer_choices.md
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torchvision import models

from densecal.torch.features.layers import select_from, trace
from densecal.torch.features.paper_layers import PAPER_LAYERS
from reproduction.classifiers import CLASSIFIERS

OTHERS: dict[str, tuple[Any, int]] = {
    "ConvNeXt-T (torchvision)": (models.convnext_tiny, 64),
    "Swin-T (torchvision)": (models.swin_t, 64),
    "EfficientNet-B0 (torchvision)": (models.efficientnet_b0, 64),
    "MobileNetV3-S (torchvision)": (models.mobilenet_v3_small, 64),
    "RegNetY-400MF (torchvision)": (models.regnet_y_400mf, 64),
    "Inception v3 (torchvision)": (lambda: models.inception_v3(init_weights=False, aux_logits=False), 128),
}
SIZES = {"img-vit-b": 224, "img-xception": 96}


def shortened(names: tuple[str, ...]) -> str:
    """Join the names, with a.0, a.1, a.2 shortened to a.0 ... a.2."""
    runs: list[list[str]] = []
    for name in names:
        stem = re.sub(r"\d+$", "", name)
        is_next = runs and re.sub(r"\d+$", "", runs[-1][-1]) == stem and stem != name and name != "logits"
        if is_next and int(name[len(stem) :]) == int(runs[-1][-1][len(stem) :]) + 1:
            runs[-1].append(name)
        else:
            runs.append([name])
    return ", ".join(
        run[0] if len(run) == 1 else f"{run[0]} ... {run[-1]}" if len(run) > 2 else ", ".join(run) for run in runs
    )


def automatic(model: nn.Module, size: int) -> tuple[str, ...]:
    generator = torch.Generator().manual_seed(0)
    return select_from(trace(model, torch.randn(2, 3, size, size, generator=generator)), model, "auto")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path)
    args = parser.parse_args()
    lines = ["| classifier | the paper's layers | the automatic choice |", "|---|---|---|"]
    for name, layers in PAPER_LAYERS.items():
        torch.manual_seed(0)
        chosen = automatic(CLASSIFIERS[name].build(), SIZES.get(name, 32 if name.startswith("c") else 64))
        lines.append(f"| {CLASSIFIERS[name].label} | {shortened((*layers, 'logits'))} | {shortened(chosen)} |")
        print(lines[-1], flush=True)
    for name, (build, size) in OTHERS.items():
        torch.manual_seed(0)
        lines.append(f"| {name} | | {shortened(automatic(build(), size))} |")
        print(lines[-1], flush=True)
    if args.output:
        args.output.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
