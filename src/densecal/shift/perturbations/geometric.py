"""Geometric perturbations: one affine map each."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import grid_sample

BORDERS = {"black": "zeros", "edge": "border", "reflect": "reflection"}


def rotate(strength: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Return (n, 2, 3) maps in units of half the image, from a result's pixel to where it comes from."""
    angle = np.deg2rad(45 * strength) * _sign(numbers[:, 0])
    return _matrix(np.cos(angle), -np.sin(angle), np.sin(angle), np.cos(angle))


def shear(strength: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Shear along x or along y."""
    amount = 0.6 * strength * _sign(numbers[:, 0])
    along_x = numbers[:, 1] < 0.5
    one = np.ones_like(amount)
    return _matrix(one, np.where(along_x, amount, 0), np.where(along_x, 0, amount), one)


def translate(strength: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Move in a random direction."""
    angle = 2 * np.pi * numbers[:, 0]
    one, zero = np.ones_like(angle), np.zeros_like(angle)
    distance = 0.8 * strength  # in half images
    return _matrix(one, zero, zero, one, distance * np.cos(angle), distance * np.sin(angle))


def scale(strength: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Make larger or smaller."""
    factor = 2.0 ** (strength * _sign(numbers[:, 0]))
    zero = np.zeros_like(factor)
    return _matrix(factor, zero, zero, factor)


def flip(strength: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Turn upside down."""
    one, zero = np.ones_like(strength), np.zeros_like(strength)
    return _matrix(one, zero, zero, -one)


def warp(images: Tensor, maps: np.ndarray, border: str) -> Tensor:
    """Resample (n, C, H, W) levels linearly by affine maps."""
    height, width = images.shape[-2:]
    device = images.device
    # Lengths count in the shorter side, so that a turned oblong image keeps its angles.
    unit = min(height, width) / 2
    y = torch.from_numpy((np.arange(height) + 0.5 - height / 2) / unit).to(device).view(1, height, 1)
    x = torch.from_numpy((np.arange(width) + 0.5 - width / 2) / unit).to(device).view(1, 1, width)
    a, b, c, d, e, f = (part.view(-1, 1, 1) for part in torch.from_numpy(maps.reshape(-1, 6)).to(device).unbind(1))
    u = (x * a + y * b + c).mul_(2 * unit / width)
    v = (x * d + y * e + f).mul_(2 * unit / height)
    grid = torch.stack([u, v], dim=-1).to(torch.float32)
    mode = BORDERS[border]
    warped = grid_sample(images.to(torch.float32), grid, padding_mode=mode, align_corners=False)
    return warped.round_().clamp_(0, 255).to(torch.uint8)


def _sign(u: np.ndarray) -> np.ndarray:
    return np.where(u < 0.5, -1.0, 1.0)


def _matrix(
    a: np.ndarray,
    b: np.ndarray,
    d: np.ndarray,
    e: np.ndarray,
    c: np.ndarray | float = 0.0,
    f: np.ndarray | float = 0.0,
) -> np.ndarray:
    zero = np.zeros_like(a)
    return np.stack([np.stack([a, b, c + zero], axis=1), np.stack([d, e, f + zero], axis=1)], axis=1)
