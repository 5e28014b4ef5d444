"""Frost overlays: generated procedurally, or the published photographs if available."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import numpy as np
import torch
from scipy import fft
from torch import Tensor
from torch.nn.functional import interpolate

from densecal.shift.corruptions.constants import constant_for_size
from densecal.shift.corruptions.randomness import Draw, lookup
from densecal.shift.random_keys import sample_keys

_SIDE = 640
_FILES = ("frost1.png", "frost2.png", "frost3.png", "frost4.jpg", "frost5.jpg")


class Overlays:
    """Frost pictures, uint8 tensors (3, H, W) of any size, each larger than the crops taken from it."""

    def __init__(self, pictures: list[Tensor]) -> None:
        self._pixels = torch.cat([picture.reshape(3, -1) for picture in pictures], dim=1)
        sizes = [picture.shape[-2:] for picture in pictures]
        starts = np.cumsum([0] + [height * width for height, width in sizes[:-1]])
        table = [[start, height, width] for start, (height, width) in zip(starts, sizes, strict=True)]
        self._table = torch.tensor(table, dtype=torch.int64, device=pictures[0].device)

    def cut(self, draw: Draw, height: int, width: int) -> Tensor:
        """Return a random crop of a random picture for each sample: (N, 3, height, width)."""
        random = (draw.bits(0, 3) >> 8).bitwise_and_(0xFFFFFF).to(torch.int64)
        chosen = self._table.index_select(0, (random[:, 0] * len(self._table)) >> 24)
        start, tall, wide = (part.view(-1, 1, 1) for part in chosen.unbind(1))
        top = (random[:, 1].view(-1, 1, 1) * (tall - height).clamp(min=1)) >> 24
        left = (random[:, 2].view(-1, 1, 1) * (wide - width).clamp(min=1)) >> 24
        y = torch.arange(height, device=draw.device).view(1, -1, 1)
        x = torch.arange(width, device=draw.device).view(1, 1, -1)
        place = (y + top) * wide + (x + left + start)
        return torch.stack([lookup(channel, place) for channel in self._pixels], dim=1)


@lru_cache(maxsize=8)
def overlays(height: int, width: int, frost_dir: str | None, device: torch.device) -> Overlays:
    """Return the overlays for images of a size: the published ones from `frost_dir`, or generated ones."""
    pictures = [_grow(number) for number in range(len(_FILES))] if frost_dir is None else _published(Path(frost_dir))
    return Overlays([_scaled(picture, height, width).to(device) for picture in pictures])


def _scaled(picture: Tensor, height: int, width: int) -> Tensor:
    """Scale a picture as published, by 1 for 224x224 images and 1/5 for 32x32, but never below the image size."""
    factor = constant_for_size(0.2, 1.0, min(height, width), is_length=True)
    factor = max(factor, (height + 1) / picture.shape[1], (width + 1) / picture.shape[2])
    if factor == 1:
        return picture
    target = round(picture.shape[1] * factor), round(picture.shape[2] * factor)
    scaled = interpolate(picture[None].to(torch.float32), size=target, mode="bilinear", align_corners=False)
    return scaled[0].round_().clamp_(0, 255).to(torch.uint8)


def _published(folder: Path) -> list[Tensor]:
    """Return the five overlays that the published generator draws from; it never draws the sixth."""
    from PIL import Image

    missing = [name for name in _FILES if not (folder / name).is_file()]
    if missing:
        raise FileNotFoundError(
            f"frost_dir={str(folder)!r} lacks {', '.join(missing)}. It must hold the overlays of the ImageNet-C "
            f"generator (frost1.png ... frost5.jpg). Omit frost_dir to use generated overlays."
        )
    pictures = []
    for name in _FILES:
        with Image.open(folder / name) as picture:
            pictures.append(torch.from_numpy(np.array(picture.convert("RGB"))).permute(2, 0, 1).contiguous())
    return pictures


@lru_cache(maxsize=len(_FILES))
def _grow(number: int) -> Tensor:
    """Return one of the generated frost pictures: feathers of ice in several directions and of varying density.

    The scale and contrast of the feathers are chosen so that a pretrained CIFAR-10 network loses about as much accuracy
    as published for the photographs.
    """
    y, x = np.fft.fftfreq(_SIDE)[:, None], np.fft.rfftfreq(_SIDE)[None, :]
    radius = np.hypot(y, x)

    def field(stream: int, spectrum: np.ndarray) -> np.ndarray:
        keys = sample_keys(np.arange(_SIDE * _SIDE), "frost", number, stream)
        white = (keys >> np.uint64(40)).astype(np.float32).reshape(_SIDE, _SIDE)
        shaped = fft.irfft2(fft.rfft2(white) * spectrum.astype(np.float32))
        return np.asarray((shaped - shaped.mean()) / shaped.std())

    feathers = np.full((_SIDE, _SIDE), -np.inf, dtype=np.float32)
    directions = 6
    for d in range(directions):
        angle = np.pi * (d + 0.3 * number) / directions
        along, across = x * np.cos(angle) + y * np.sin(angle), y * np.cos(angle) - x * np.sin(angle)
        needles = field(d, np.exp(-0.5 * ((along * 90) ** 2 + ((np.abs(across) - 0.04) * 35) ** 2)))
        where = field(20 + d, np.exp(-0.5 * (radius * 55) ** 2))
        feathers = np.maximum(feathers, np.abs(needles) * 0.55 + where)
    grain = field(40, 1 / (radius + 0.02))
    thick = field(50, np.exp(-0.5 * (radius * 150) ** 2))
    ice = 0.46 + 0.13 * (feathers - feathers.mean()) / feathers.std() + 0.04 * grain + 0.17 * thick
    ice = np.clip(ice, 0.02, 1.0)[None]
    tint = np.array([0.76, 0.91, 1.12]).reshape(3, 1, 1)
    colour = ice * (tint + (1 - tint) * ice)
    return torch.from_numpy(np.clip(colour * 255, 0, 255).astype(np.uint8))
