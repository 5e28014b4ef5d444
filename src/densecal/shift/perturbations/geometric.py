"""Geometric perturbations: affine maps from output to input coordinates, in units of half the image."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import grid_sample

BORDERS = {"black": "zeros", "edge": "border", "reflect": "reflection"}


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
