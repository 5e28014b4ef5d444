"""Tonal and colour perturbations, which map each level or each pixel independently."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from densecal.shift.corruptions.randomness import lookup

_LEVELS = np.arange(256, dtype=np.float64)[None]


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
    power = 4.0 ** (strength * np.where(numbers[:, 0] < 0.5, -1.0, 1.0))
    return 255 * (_LEVELS / 255) ** power[:, None]


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
    angle = np.pi * strength * np.where(numbers[:, 0] < 0.5, -1.0, 1.0)
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
