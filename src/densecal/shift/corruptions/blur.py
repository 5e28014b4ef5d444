"""Blur: gaussian, defocus, motion and zoom."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from densecal.shift.batches import cut_off
from densecal.shift.corruptions.constants import Constants
from densecal.shift.corruptions.linear import filter2d, gaussian_filter, pixel_map, zoom_sum, zoomed
from densecal.shift.corruptions.randomness import Draw

_ANGLES = 1 << 12
_FIELD = 21  # bits of a packed channel: 8 for the level and 13 for the weight
_SUM = 1 << 13
_FEW_PIXELS = 64 * 64  # up to this size a zoom is one sparse matrix, above it a loop


def gaussian_blur(images: Tensor, constants: Constants, draw: Draw) -> Tensor:
    """Convolve with a Gaussian truncated at four sigma; border pixels are repeated."""
    return cut_off(gaussian_filter(images, constants[0], "nearest", 4.0))


def defocus_blur(images: Tensor, constants: Constants, draw: Draw) -> Tensor:
    """Convolve with an anti-aliased disk."""
    return cut_off(filter2d(images, disk(*constants)))


@lru_cache(maxsize=32)
def disk(radius: float, alias_blur: float) -> np.ndarray:
    """Return a disk kernel, smoothed with a 3x3 Gaussian (5x5 above a radius of 8) and cropped to its support."""
    reach = 8 if radius <= 8 else int(radius)
    line = np.arange(-reach, reach + 1) if radius <= 8 else np.arange(-radius, radius + 1)
    full = (line[:, None] ** 2 + line[None, :] ** 2 <= radius**2).astype(np.float64)
    full /= full.sum()
    half = 1 if radius <= 8 else 2
    smooth = np.exp(-0.5 * (np.arange(-half, half + 1) / alias_blur) ** 2)
    smooth /= smooth.sum()
    padded = np.pad(full, half, mode="reflect")
    n = len(line)
    rows = sum(weight * padded[i : i + n] for i, weight in enumerate(smooth))
    kernel = np.asarray(sum(weight * rows[:, i : i + n] for i, weight in enumerate(smooth)))
    kernel[kernel < 1e-12] = 0
    middle = n // 2
    reach = int(np.abs(np.argwhere(kernel) - middle).max())
    return np.asarray(kernel[middle - reach : middle + reach + 1, middle - reach : middle + reach + 1])


def zoom_blur(images: Tensor, constants: Constants, draw: Draw) -> Tensor:
    """Return the mean of the image and of its zooms.

    The published factors are `numpy.arange(1, upper, step)`, whose rounding includes the upper end for 1.06 and 1.11.
    """
    factors = tuple(float(f) for f in np.arange(1, constants[0], constants[1]))
    height, width = images.shape[-2:]
    if height * width <= _FEW_PIXELS:
        total = pixel_map(images, zoom_sum(height, width, factors, images.device))
    else:
        levels = images.to(torch.float32)
        total = levels.clone()  # the zoom by one
        for factor in factors[1:]:
            total += zoomed(levels, factor)
    return cut_off(total.add_(images).div_(len(factors) + 1))


def motion_blur(images: Tensor, constants: Constants, draw: Draw) -> Tensor:
    """Blur in a random direction between -45 and 45 degrees, on one side only, with half-normal weights."""
    return smear(images, constants[0], constants[1], (-45.0, 45.0), draw, stream=0)


def smear(images: Tensor, radius: float, sigma: float, degrees: tuple[float, float], draw: Draw, stream: int) -> Tensor:
    """Apply motion blur as in ImageMagick: taps at whole pixels along a random direction, borders repeated."""
    n, channels, height, width = images.shape
    weights = _half_normal(radius, sigma)
    angle = (draw.bits(stream, 1) & (_ANGLES - 1)).view(-1)
    steps = _path(len(weights), degrees, images.device).index_select(1, angle)
    y = torch.arange(height, device=images.device).view(1, height, 1)
    x = torch.arange(width, device=images.device).view(1, 1, width)
    start = torch.arange(n, device=images.device).view(n, 1, 1) * (height * width)
    packed = _pack(images)
    total = torch.zeros(n * height * width, dtype=torch.int64, device=images.device)
    for tap, weight in enumerate(weights):
        rows = (y + steps[tap, :, :1, None]).clamp_(0, height - 1).mul_(width).add_(start)
        columns = (x + steps[tap, :, 1:, None]).clamp_(0, width - 1)
        source = (rows + columns).view(-1)
        total += packed.index_select(0, source).mul_(weight)
    return _unpack(total.view(n, height, width), channels)


def _half_normal(radius: float, sigma: float) -> list[int]:
    """Return the weights of the taps as integers that sum to 2^13, without trailing zeros."""
    taps = np.arange(2 * math.ceil(radius) + 1)
    density = np.exp(-0.5 * (taps / sigma) ** 2)
    weights = np.rint(density / density.sum() * _SUM).astype(int)
    weights[0] += _SUM - weights.sum()
    return [int(weight) for weight in weights[: int(np.nonzero(weights)[0][-1]) + 1]]


@lru_cache(maxsize=64)
def _path(taps: int, degrees: tuple[float, float], device: torch.device) -> Tensor:
    """Return whole-pixel steps (taps, angles, 2) as (y, x) for evenly spaced angles."""
    low, high = degrees
    angle = np.deg2rad(low + (np.arange(_ANGLES) + 0.5) / _ANGLES * (high - low))
    distance = np.arange(taps)[:, None]
    steps = np.stack([np.ceil(distance * np.sin(angle) - 0.5), np.ceil(distance * np.cos(angle) - 0.5)], axis=-1)
    return torch.from_numpy(steps.astype(np.int64)).to(device)


def _pack(images: Tensor) -> Tensor:
    """Pack the channels of a pixel into one integer, 21 bits each, so that one look-up serves all of them."""
    packed = images[:, 0].to(torch.int64)
    for channel in range(1, images.shape[1]):
        packed |= images[:, channel].to(torch.int64) << (_FIELD * channel)
    return packed.view(-1)


def _unpack(total: Tensor, channels: int) -> Tensor:
    """Split packed sums (N, H, W) into levels (N, channels, H, W), rounded to the nearest."""
    mask = (1 << _FIELD) - 1
    fields = [((total >> (_FIELD * c)) & mask).add_(_SUM // 2) >> 13 for c in range(channels)]
    return torch.stack(fields, dim=1).to(torch.uint8)
