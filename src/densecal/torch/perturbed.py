"""Perturbed copies of a loader's images, with any normalisation, for fitting calibrators under shift."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from densecal.errors import warn_user
from densecal.shift import perturb, plan_perturbations
from densecal.torch.batches import Batch

Kinds: TypeAlias = Sequence[str] | Mapping[str, float] | None
Split: TypeAlias = Callable[[Iterable[Any]], Iterator[Batch]]
"""Splits the batches of a loader into arguments and labels."""
COPIES = 3
"""Number of perturbed copies of the validation images."""
MAX_RANGE = 10.0
"""The range of all images in units of that of the median image, above which one image has outliers."""


@dataclass(frozen=True)
class PixelRange:
    """The minimum and maximum of each channel: black and white after normalisation."""

    lowest: Tensor
    highest: Tensor

    @classmethod
    def of(cls, batches: Iterable[Batch]) -> PixelRange:
        """Return the range over all images; warn if it is far wider than that of most images."""
        ranges = [_images(batch).detach().flatten(2).aminmax(dim=2) for batch in batches]
        if not ranges:
            raise ValueError("val_loader yielded no batches.")
        lowest, highest = (torch.cat([side.cpu() for side in sides]) for sides in zip(*ranges, strict=True))
        if lowest.is_floating_point():
            _warn_of_outlier(lowest.float(), highest.float())
        low, high = lowest.float().amin(dim=0), highest.float().amax(dim=0)
        return cls(low[:, None, None], torch.maximum(high, low + 1e-6)[:, None, None])

    def to_bytes(self, images: Tensor) -> Tensor:
        """Return images as uint8, with black at 0 and white at 255."""
        if images.dtype == torch.uint8:
            return images
        low, high = self.lowest.to(images.device), self.highest.to(images.device)
        return ((images.float() - low) / (high - low) * 255).round().clamp(0, 255).to(torch.uint8)

    def from_bytes(self, pixels: Tensor, like: Tensor) -> Tensor:
        """Undo :meth:`to_bytes`, in the dtype of the original images."""
        if like.dtype == torch.uint8:
            return pixels
        low, high = self.lowest.to(pixels.device), self.highest.to(pixels.device)
        return (low + pixels.float() / 255 * (high - low)).to(like.dtype)


def _warn_of_outlier(lowest: Tensor, highest: Tensor) -> None:
    """Warn if one image widens the range of a channel far beyond that of most; both have shape (n_images, channels)."""
    usual = (highest - lowest).median(dim=0).values
    total = highest.amax(dim=0) - lowest.amin(dim=0)
    is_wide = (total > MAX_RANGE * usual) & (usual > 0)
    if bool(is_wide.any()):
        beyond = torch.maximum(highest - highest.median(dim=0).values, lowest.median(dim=0).values - lowest)
        image = int(beyond[:, is_wide].amax(dim=1).argmax())
        warn_user(
            f"Image {image} of val_loader has values far outside those of most images. The "
            "smallest and largest values count as black and white, so perturbed copies of the other images have hardly "
            "any contrast and the fit under shift is poor. Remove the image, or clip the values."
        )


@dataclass(frozen=True)
class PerturbedLoader:
    """A loader whose batches have their first image tensor perturbed; every pass yields the same batches."""

    loader: Iterable[Any]
    split: Split
    pixels: PixelRange
    seed: int
    kinds: Kinds = None

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Batch]:
        start = 0
        for batch in self.split(self.loader):
            images = _images(batch)
            index = np.arange(start, start + len(images))
            perturbed = perturb(self.pixels.to_bytes(images), self.seed, kinds=self.kinds, index=index)
            perturbed = self.pixels.from_bytes(perturbed, images)
            start += len(images)
            yield batch.map(lambda tensor, old=images, new=perturbed: new if tensor is old else tensor)  # type: ignore[misc]

    def domains(self, n_samples: int) -> NDArray[np.str_]:
        """Return the kind and strength of the perturbation of each of the first samples."""
        return plan_perturbations(np.arange(n_samples), self.seed, kinds=self.kinds).domains()


def check_perturb(perturb: object) -> bool | Literal["auto"] | Kinds:
    """Return True, False, "auto", the names of kinds, or a mapping of kinds to their weights."""
    if perturb is None or isinstance(perturb, (bool, np.bool_)):
        return bool(perturb)
    if isinstance(perturb, str) and perturb == "auto":
        return "auto"
    kinds = dict(perturb) if isinstance(perturb, Mapping) else tuple(perturb) if isinstance(perturb, Iterable) else ()
    if isinstance(perturb, str) or not kinds:
        raise ValueError(f"perturb must be True, False, 'auto' or a list of kinds, ['gamma', 'hue'], got {perturb!r}.")
    plan_perturbations(np.arange(0), kinds=kinds)  # raises for a misspelt kind
    return kinds


def perturbed_loaders(loader: Iterable[Any], split: Split, seed: int, kinds: Kinds) -> list[PerturbedLoader]:
    """Return one loader per perturbed copy, with these kinds of perturbations or (None) with all."""
    if isinstance(loader, Iterator):
        raise ValueError("perturb=True reads val_loader several times, but it is an iterator. Pass a list of batches.")
    pixels = PixelRange.of(split(loader))
    return [PerturbedLoader(loader, split, pixels, seed + number, kinds) for number in range(COPIES)]


def find_images(batch: Batch) -> Tensor | None:
    """Return the first tensor of images in a batch, or None."""
    return next((tensor for tensor in batch.tensors if tensor.ndim == 4 and tensor.shape[1] in (1, 3)), None)


def _images(batch: Batch) -> Tensor:
    images = find_images(batch)
    if images is None:
        raise ValueError(
            "perturb=True needs images, but a batch of val_loader has no tensor of shape (n_samples, 1 or 3, height, "
            "width). For other data pass loaders of perturbed, labelled inputs as shifted=[...]."
        )
    return images
