"""Perturbed copies of a loader's images, whatever their normalisation, to fit a calibration for where data will go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

COPIES = 3
"""How many perturbed copies of the validation images a fit sees."""


@dataclass(frozen=True)
class PixelRange:
    """The smallest and the largest value of each channel: what black and white became by the normalisation."""

    lowest: Tensor
    highest: Tensor

    @classmethod
    def of(cls, loader: Iterable[Any]) -> PixelRange:
        """Read it off all images of a loader."""
        lowest: Tensor | None = None
        highest: Tensor | None = None
        for batch in loader:
            images = _images(batch).detach().float().cpu()
            low, high = images.amin(dim=(0, 2, 3)), images.amax(dim=(0, 2, 3))
            lowest = low if lowest is None else torch.minimum(lowest, low)
            highest = high if highest is None else torch.maximum(highest, high)
        if lowest is None or highest is None:
            raise ValueError("val_loader gave no batch, so there is nothing to perturb.")
        return cls(lowest[:, None, None], torch.maximum(highest, lowest + 1e-6)[:, None, None])

    def to_bytes(self, images: Tensor) -> Tensor:
        """Return images as uint8, black as 0 and white as 255."""
        low, high = self.lowest.to(images.device), self.highest.to(images.device)
        return ((images.float() - low) / (high - low) * 255).round().clamp(0, 255).to(torch.uint8)

    def from_bytes(self, pixels: Tensor, like: Tensor) -> Tensor:
        """Undo :meth:`to_bytes`, in the type of the original images."""
        low, high = self.lowest.to(pixels.device), self.highest.to(pixels.device)
        return (low + pixels.float() / 255 * (high - low)).to(like.dtype)


class PerturbedLoader:
    """A loader's batches with perturbed images; all else in them stays, and every pass gives the same.

    Parameters
    ----------
    loader : iterable of batches
        Each holds one tensor of images, (samples, 1 or 3, height, width): floats of any normalisation, or uint8.
    pixels : PixelRange
        What black and white are.
    seed : int
        Another seed gives another perturbed copy.

    Examples
    --------
    >>> loader = [(torch.rand(4, 3, 8, 8), torch.tensor([0, 1, 2, 0]))]
    >>> images, labels = next(iter(PerturbedLoader(loader, PixelRange.of(loader), seed=0)))
    >>> images.shape, labels
    (torch.Size([4, 3, 8, 8]), tensor([0, 1, 2, 0]))
    """

    def __init__(self, loader: Iterable[Any], pixels: PixelRange, seed: int) -> None:
        self.loader, self.pixels, self.seed = loader, pixels, seed

    def __len__(self) -> int:
        return len(self.loader)  # type: ignore[arg-type]

    def __iter__(self) -> Iterator[Any]:
        from densecal.shift import perturb

        start = 0
        for batch in self.loader:

            def moved(images: Tensor, first: int = start) -> Tensor:
                index = np.arange(first, first + len(images))
                if images.dtype == torch.uint8:
                    return perturb(images, self.seed, index=index)
                return self.pixels.from_bytes(perturb(self.pixels.to_bytes(images), self.seed, index=index), images)

            start += len(_images(batch))
            yield _with_images(batch, moved)


def perturbed_loaders(loader: Iterable[Any], seed: int) -> list[PerturbedLoader]:
    """Return loaders of the perturbed copies that a fit takes."""
    if isinstance(loader, Iterator):
        raise ValueError(
            "perturb=True reads val_loader several times, and an iterator gives its batches once. Pass a list."
        )
    pixels = PixelRange.of(loader)
    return [PerturbedLoader(loader, pixels, seed + number) for number in range(COPIES)]


def gives_images(loader: Iterable[Any]) -> bool:
    """Whether a loader gives images, and can be read again: a bare iterator cannot."""
    if isinstance(loader, Iterator):
        return False
    first = next(iter(loader), None)
    return first is not None and any(_is_images(value) for value in _values(first))


def _is_images(value: Any) -> bool:
    return isinstance(value, Tensor) and value.ndim == 4 and value.shape[1] in (1, 3)


def _images(batch: Any) -> Tensor:
    found = next((value for value in _values(batch) if _is_images(value)), None)
    if found is None:
        raise ValueError(
            "perturb=True perturbs images, and a batch of val_loader holds no tensor of shape (samples, 1 or 3, "
            "height, width). For other data pass loaders of perturbed inputs with their labels as shifted=[...]."
        )
    image: Tensor = found
    return image


def _values(batch: Any) -> Iterable[Any]:
    return batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, (tuple, list)) else [batch]


def _with_images(batch: Any, change: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(batch, Mapping):
        return {name: change(value) if _is_images(value) else value for name, value in batch.items()}
    if isinstance(batch, (tuple, list)):
        place = next(number for number, value in enumerate(batch) if _is_images(value))
        return tuple(change(value) if number == place else value for number, value in enumerate(batch))
    return change(batch)
