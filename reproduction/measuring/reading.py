"""Read a network on images, and measure the distances of what its layers return."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from densecal import FeatureBank, Outputs
from densecal.arrays import ArrayLike
from densecal.shift import Dataset
from densecal.torch import extract

BATCH = 500
LOGITS = "logits"

Prepare = Callable[[Tensor], Tensor]
"""Turns uint8 images of shape (n_samples, height, width, 3) into input of a network."""


def image_batches(dataset: Dataset, prepare: Prepare, device: torch.device | str | None) -> Iterator[Tensor]:
    """Yield the images of a data set as input of a network."""
    for start in range(0, len(dataset), BATCH):
        pixels, _ = dataset.batch(range(start, min(start + BATCH, len(dataset))))
        yield prepare(torch.from_numpy(pixels).to(device))


def read_dataset(network: nn.Module, dataset: Dataset, layers: Sequence[str], prepare: Prepare) -> Outputs:
    """Return a network's logits on a data set, its labels, and the features of the layers."""
    device = next(network.parameters()).device
    read = extract(network, image_batches(dataset, prepare, device), list(layers), progress=False)
    return Outputs(read.logits, dataset.labels, read.features)


class Banks:
    """The training samples, as they are and as centres."""

    def __init__(self, train: Mapping[str, ArrayLike], k: int) -> None:
        self.rows, self.centres = FeatureBank(train, k=k), FeatureBank(train)

    def distances(self, features: Mapping[str, ArrayLike], ks: Sequence[int]) -> NDArray[np.float32]:
        """Return the distances to the k-th training samples and, last, to the nearest centre."""
        rows = torch.as_tensor(self.rows.distances(features, k=ks))
        nearest = torch.as_tensor(self.centres.distances(features)).to(rows)
        return torch.cat([rows, nearest[:, :, None]], dim=2).cpu().numpy()


def disable_tf32() -> None:
    """Compute in full precision: distances are differences of nearly equal numbers, for which TF32 is too coarse."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
