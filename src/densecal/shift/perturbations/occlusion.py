"""Occlusions: parts of the image are covered or swapped."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from densecal.shift.corruptions.randomness import lookup

_TILES = 4


def cutout(images: Tensor, strength: np.ndarray, numbers: np.ndarray) -> Tensor:
    """Cover a square within the image, with a side of up to 0.7 of the shorter side."""
    height, width = images.shape[-2:]
    side = np.maximum(np.rint(0.7 * strength * min(height, width)), 1)
    top = np.floor(numbers[:, 0] * (height - side + 1))
    left = np.floor(numbers[:, 1] * (width - side + 1))
    rows = _between(height, top, side, images.device).unsqueeze(2)
    columns = _between(width, left, side, images.device).unsqueeze(1)
    return _cover(images, rows & columns, numbers[:, 2:5])


def bars(images: Tensor, strength: np.ndarray, numbers: np.ndarray) -> Tensor:
    """Cover four equal horizontal or vertical stripes, in total up to half of the image."""
    height, width = images.shape[-2:]
    upright = torch.from_numpy(numbers[:, 0] < 0.5).to(images.device).view(-1, 1, 1)
    rows = _stripes(height, strength, numbers[:, 1], images.device).unsqueeze(2)
    columns = _stripes(width, strength, numbers[:, 1], images.device).unsqueeze(1)
    return _cover(images, torch.where(upright, columns, rows), numbers[:, 2:5])


def grid_shuffle(images: Tensor, strength: np.ndarray, numbers: np.ndarray) -> Tensor:
    """Permute a fraction of the 4x4 tiles."""
    n, channels, height, width = images.shape
    tall, wide = height // _TILES, width // _TILES
    if tall == 0 or wide == 0:
        return images.clone()
    source = torch.from_numpy(_tile_sources(strength, numbers)).to(images.device)
    y = torch.arange(tall * _TILES, device=images.device).view(-1, 1)
    x = torch.arange(wide * _TILES, device=images.device).view(1, -1)
    tile = (y // tall) * _TILES + x // wide
    source_tile = source.index_select(1, tile.view(-1)).view(n, tall * _TILES, wide * _TILES)
    pixel = ((source_tile // _TILES) * tall + y % tall) * width + (source_tile % _TILES) * wide + x % wide
    plane = torch.arange(n * channels, device=images.device).view(n, channels, 1, 1) * (height * width)
    result = images.clone()
    result[:, :, : tall * _TILES, : wide * _TILES] = lookup(images.reshape(-1), pixel.unsqueeze(1) + plane)
    return result


def _tile_sources(strength: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Return the source of each tile, (n, 16): a cyclic permutation of randomly chosen tiles."""
    count = _TILES * _TILES
    spread = np.arange(1, count + 1) * 0.6180339887498949
    lots = np.modf((numbers[:, :1] * 997 + numbers[:, 1:2] * spread * 991 + spread) * 61.8)[0]
    order = np.argsort(lots, axis=1)
    moving = np.maximum(np.rint(strength * count), 2).astype(int)[:, None]
    place = np.arange(count)[None]
    following = np.where(place < moving, (place + 1) % moving, place)
    source = np.empty_like(order)
    np.put_along_axis(source, order, np.take_along_axis(order, following, axis=1), axis=1)
    return source


def _between(size: int, start: np.ndarray, length: np.ndarray, device: torch.device) -> Tensor:
    place = np.arange(size)[None]
    return torch.from_numpy((place >= start[:, None]) & (place < (start + length)[:, None])).to(device)


def _stripes(size: int, strength: np.ndarray, phase: np.ndarray, device: torch.device) -> Tensor:
    cycle = np.modf(np.arange(size)[None] / size * 4 + phase[:, None])[0]
    return torch.from_numpy(cycle < 0.5 * strength[:, None]).to(device)


def _cover(images: Tensor, mask: Tensor, colour: np.ndarray) -> Tensor:
    levels = torch.from_numpy(np.floor(colour * 256).astype(np.uint8)).to(images.device)
    return torch.where(mask.unsqueeze(1), levels[:, : images.shape[1], None, None], images)
