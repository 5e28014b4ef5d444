"""The perturbations: geometric, tonal, colour and occlusion.

Geometric ones are affine maps from output to input coordinates, in units of half the image. Tonal and colour ones map
each level or each pixel independently. Occlusions cover or swap parts of the image.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import grid_sample

from densecal.shift.corruptions import spatter
from densecal.shift.corruptions.randomness import lookup

BORDERS = {"black": "zeros", "edge": "border", "reflect": "reflection"}
_LEVELS = np.arange(256, dtype=np.float64)[None]
_TILES = 4


def rotate(strength: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Return (n, 2, 3) rotations by up to 45 degrees."""
    angle = np.deg2rad(45 * strength) * _sign(numbers[:, 0])
    return _affine(np.cos(angle), -np.sin(angle), 0.0, np.sin(angle), np.cos(angle), 0.0)


def shear(strength: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Return shears along x or y."""
    amount = 0.6 * strength * _sign(numbers[:, 0])
    along_x = numbers[:, 1] < 0.5
    return _affine(1.0, np.where(along_x, amount, 0), 0.0, np.where(along_x, 0, amount), 1.0, 0.0)


def translate(strength: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Return translations in a random direction."""
    angle = 2 * np.pi * numbers[:, 0]
    distance = 0.8 * strength  # in units of half the image
    return _affine(1.0, 0.0, distance * np.cos(angle), 0.0, 1.0, distance * np.sin(angle))


def scale(strength: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Return enlargements or reductions."""
    factor = 2.0 ** (strength * _sign(numbers[:, 0]))
    return _affine(factor, 0.0, 0.0, 0.0, factor, 0.0)


def flip(strength: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Return vertical flips."""
    return _affine(np.ones_like(strength), 0.0, 0.0, 0.0, -1.0, 0.0)


def warp(images: Tensor, maps: np.ndarray, border: str) -> Tensor:
    """Resample (n, C, H, W) levels by affine maps with bilinear interpolation."""
    height, width = images.shape[-2:]
    device = images.device
    # Both axes are in units of the shorter side, so that rotations of non-square images preserve angles.
    unit = min(height, width) / 2
    y = torch.from_numpy((np.arange(height) + 0.5 - height / 2) / unit).to(device).view(1, height, 1)
    x = torch.from_numpy((np.arange(width) + 0.5 - width / 2) / unit).to(device).view(1, 1, width)
    a, b, c, d, e, f = (part.view(-1, 1, 1) for part in torch.from_numpy(maps.reshape(-1, 6)).to(device).unbind(1))
    u = (x * a + y * b + c).mul_(2 * unit / width)
    v = (x * d + y * e + f).mul_(2 * unit / height)
    grid = torch.stack([u, v], dim=-1).to(torch.float32)
    warped = grid_sample(images.to(torch.float32), grid, padding_mode=BORDERS[border], align_corners=False)
    return warped.round_().clamp_(0, 255).to(torch.uint8)


def _sign(u: np.ndarray) -> np.ndarray:
    return np.where(u < 0.5, -1.0, 1.0)


def _affine(*entries: np.ndarray | float) -> np.ndarray:
    """Return (n, 2, 3) matrices from their six entries, row by row."""
    return np.stack(np.broadcast_arrays(*entries), axis=1).reshape(-1, 2, 3)


def posterise(strength: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Return (n, 256) tables that reduce levels to 8 - 7 * strength bits, which may be fractional."""
    steps = 2.0 ** (8 - 7 * strength[:, None])
    return np.asarray(np.floor(_LEVELS / 256 * steps) * 255 / np.maximum(np.ceil(steps) - 1, 1))


def solarise(strength: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Return tables that invert the levels from a threshold: 256 at no strength, 64 at full strength."""
    threshold = 256 - 192 * strength[:, None]
    return np.where(threshold <= _LEVELS, 255 - _LEVELS, _LEVELS)


def gamma(strength: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Return tables that raise levels to a power, which darkens or brightens the image."""
    power = 4.0 ** (strength * _sign(numbers[:, 0]))
    return np.asarray(255 * (_LEVELS / 255) ** power[:, None])


def apply_tables(images: Tensor, tables: np.ndarray) -> Tensor:
    """Map the levels of (n, C, H, W) by one table per image (n, 256) or per channel (n, C, 256)."""
    n, channels = images.shape[:2]
    spread = np.broadcast_to(tables.reshape(n, -1, 256)[:, :channels], (n, channels, 256))
    flat = np.clip(np.rint(spread), 0, 255).astype(np.uint8).reshape(-1)
    start = torch.arange(n * channels, device=images.device, dtype=torch.int32).view(n, channels, 1, 1) * 256
    return lookup(torch.from_numpy(flat).to(images.device), images.to(torch.int32).add_(start))


def channel_offset(strength: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Return (n, 3, 256) tables that shift each channel by its own offset."""
    shift = 96 * strength[:, None] * (2 * numbers[:, :3] - 1)
    return np.asarray(_LEVELS[None] + shift[:, :, None])


def channel_mix(strength: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Return (n, 3, 3) matrices that blend the channels with one of their five nontrivial permutations."""
    orders = np.array([[0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]])
    permuted = np.eye(3)[orders[(numbers[:, 0] * 5).astype(int)]]
    share = strength[:, None, None]
    return np.asarray((1 - share) * np.eye(3) + share * permuted)


def hue(strength: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Return (n, 3, 3) matrices that rotate colours about the grey axis."""
    angle = np.pi * strength * _sign(numbers[:, 0])
    cos, sin = np.cos(angle)[:, None, None], np.sin(angle)[:, None, None]
    cross = np.array([[0, -1, 1], [1, 0, -1], [-1, 1, 0]]) / np.sqrt(3)
    return np.asarray(cos * np.eye(3) + (1 - cos) / 3 + sin * cross)


def apply_matrices(images: Tensor, matrices: np.ndarray) -> Tensor:
    """Mix the channels of (n, 3, H, W); grey images are returned unchanged."""
    if images.shape[1] == 1:
        return images.clone()
    weights = torch.from_numpy(matrices.astype(np.float32)).to(images.device)[:, :, :, None, None]
    red, green, blue = images.to(torch.float32).chunk(3, dim=1)
    mixed: Tensor = (weights[:, :, 0] * red).add_(weights[:, :, 1] * green).add_(weights[:, :, 2] * blue)
    return mixed.round_().clamp_(0, 255).to(torch.uint8)


def equalise(images: Tensor, strength: np.ndarray, numbers: np.ndarray) -> Tensor:
    """Blend with the histogram-equalised copy."""
    n, channels, height, width = images.shape
    x = images.to(torch.float32)
    equal = spatter.equalise(images.to(torch.int32).view(-1, height, width)).view(n, channels, height, width)
    share = torch.from_numpy(strength.astype(np.float32)).to(images.device).view(-1, 1, 1, 1)
    return (equal - x).mul_(share).add_(x).round_().clamp_(0, 255).to(torch.uint8)


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
