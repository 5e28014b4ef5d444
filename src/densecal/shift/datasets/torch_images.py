"""Data sets for torch: normalised float tensors, fetched in batches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch.utils.data import Dataset as TorchDataset

from densecal.shift.datasets.base import Dataset
from densecal.shift.datasets.checks import Image, check_indices, three_floats


class TorchImages(TorchDataset[tuple[torch.Tensor, int]]):
    """The result of `Dataset.as_torch`. A ``DataLoader`` fetches whole batches, so corruptions run once per batch."""

    def __init__(
        self,
        dataset: Dataset,
        *,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        to_tensor: Callable[[Image], torch.Tensor] | None = None,
    ) -> None:
        if to_tensor is not None and (mean is not None or std is not None):
            raise ValueError("to_tensor replaces the normalisation: pass either to_tensor or mean and std, not both")
        self.dataset = dataset
        self.to_tensor = to_tensor
        self.mean = three_floats(dataset.mean if mean is None else mean, "mean")
        self.std = three_floats(dataset.std if std is None else std, "std")

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[torch.Tensor, int]]:
        """Return several samples, read and corrupted together."""
        positions = check_indices(indices, len(self.dataset), self.dataset.name)
        labels = self.dataset.labels[positions].tolist()
        if self.to_tensor is not None:
            tensors = [self.to_tensor(image) for image in self.dataset._read(positions)]
        else:
            tensors = list(self._normalise(self.dataset._tensors(positions)))
        return list(zip(tensors, labels, strict=True))

    def _normalise(self, images: torch.Tensor) -> torch.Tensor:
        """Return uint8 (B, H, W, 3) as normalised float32 (B, 3, H, W) on the same device."""
        mean = torch.tensor(self.mean, device=images.device)
        std = torch.tensor(self.std, device=images.device)
        # (x / 255 - mean) / std as one multiply and one add on the contiguous channels-last batch.
        scaled = images.to(torch.float32).mul_(1 / (255 * std)).sub_(mean / std)
        return scaled.permute(0, 3, 1, 2).contiguous()
