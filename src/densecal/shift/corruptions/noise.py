"""Noise: gaussian, shot, impulse and speckle."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from scipy.special import pdtr
from torch import Tensor

from densecal.shift.batches import to_levels, to_unit
from densecal.shift.corruptions.constants import Constants
from densecal.shift.corruptions.randomness import Draw, lookup


def gaussian_noise(images: Tensor, constants: Constants, draw: Draw) -> Tensor:
    """Return x + sigma n."""
    x = to_unit(images)
    return to_levels(x.add_(_normal_like(images, draw).mul_(constants[0])))


def speckle_noise(images: Tensor, constants: Constants, draw: Draw) -> Tensor:
    """Return x + x sigma n."""
    x = to_unit(images)
    return to_levels(_normal_like(images, draw).mul_(constants[0]).mul_(x).add_(x))


def impulse_noise(images: Tensor, constants: Constants, draw: Draw) -> Tensor:
    """Set a random share of the values, drawn per channel, to white or black with equal probability."""
    u = draw.uniform(0, images[0].numel()).view(images.shape)
    pepper = images.masked_fill(u < constants[0], 0)
    return pepper.masked_fill_(u < constants[0] / 2, 255)


def shot_noise(images: Tensor, constants: Constants, draw: Draw) -> Tensor:
    """Return Poisson(rate x) / rate by inversion, with a table of quantiles for each of the 256 levels."""
    table = _shot_table(constants[0], images.device)
    position = draw.halves(0, images[0].numel()).view(images.shape)
    return lookup(table, position.add_(images.to(torch.int32).bitwise_left_shift_(16)))


def _normal_like(images: Tensor, draw: Draw) -> Tensor:
    return draw.normal(0, images[0].numel()).view(images.shape)


@lru_cache(maxsize=4)
def _shot_table(rate: float, device: torch.device) -> Tensor:
    """Return the output level of each input level (256) at each quantile (65,536) as a flat tensor."""
    parts = 1 << 16
    table = np.empty((256, parts), dtype=np.uint8)
    counts = np.arange(int(rate + 12 * rate**0.5 + 40))
    levels = np.minimum(np.floor(counts / rate * 255 + 1e-6), 255).astype(np.uint8)
    for level in range(256):
        ends = np.rint(pdtr(counts, level / 255 * rate) * parts).astype(np.int64)
        ends[-1] = parts
        table[level] = np.repeat(levels, np.diff(ends, prepend=0))
    return torch.from_numpy(table.reshape(-1)).to(device)
