"""Conversion between levels from 0 to 255 and numbers from 0 to 1."""

from __future__ import annotations

import torch
from torch import Tensor

# Levels are truncated, not rounded, as in the published generator. The guard keeps rounding errors from decreasing an
# integer level by one, which would make the result depend on the device and the batch.
_GUARD = 2.0**-10

LUMA = (0.299, 0.587, 0.114)


def to_unit(images: Tensor) -> Tensor:
    """Return levels divided by 255."""
    return images.to(torch.float32).div_(255.0)


def to_levels(unit: Tensor) -> Tensor:
    """Return numbers from 0 to 1 as uint8 levels, clipped and truncated; works in place on `unit`."""
    return cut_off(unit.mul_(255.0))


def cut_off(levels: Tensor) -> Tensor:
    """Return float levels as uint8, clipped and truncated; works in place on `levels`."""
    return levels.add_(_GUARD).clamp_(0.0, 255.0).to(torch.uint8)


def luma(unit: Tensor) -> Tensor:
    """Return the grey image (N, 1, H, W) of colour or grey images (N, 3 or 1, H, W)."""
    if unit.shape[1] == 1:
        return unit
    red, green, blue = unit.unbind(1)
    return (red * LUMA[0]).add_(green * LUMA[1]).add_(blue * LUMA[2]).unsqueeze(1)
