"""Spatter: drops of water (severities 1 to 3) or mud (4 and 5) on the lens.

Water uses the edges of the drops, the distance to the nearest edge and an equalised histogram. These follow OpenCV's
Canny detector, its 5x5 chamfer distance and its histogram equalisation, for whole batches.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from densecal.shift.batches import to_levels, to_unit
from densecal.shift.corruptions.constants import Constants
from densecal.shift.corruptions.linear import filter2d, gaussian_filter
from densecal.shift.corruptions.randomness import Draw

_WATER = (175 / 255, 238 / 255, 238 / 255)
_MUD = (63 / 255, 42 / 255, 20 / 255)
_BOX = np.ones((3, 3))
_EMBOSS = np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]])
_FAR = 20  # maximum distance
_WEAK, _STRONG = 50, 150  # thresholds of the gradient at an edge
_TAN_22 = 13573  # tan(22.5 degrees) in 15 bits


def spatter(images: Tensor, constants: Constants, draw: Draw) -> Tensor:
    """Add drops to colour images (N, 3, H, W) where smoothed noise exceeds a threshold."""
    loc, scale, sigma, threshold, strength, mud = constants
    n, _, height, width = images.shape
    liquid = draw.normal(0, height * width).view(n, height, width).mul_(scale).add_(loc)
    liquid = gaussian_filter(liquid, sigma, "nearest", 4.0)
    liquid.masked_fill_(liquid < threshold, 0.0)
    x = to_unit(images)
    colour = torch.tensor(_MUD if mud >= 0.5 else _WATER, device=images.device).view(1, 3, 1, 1)
    if mud >= 0.5:
        cover = gaussian_filter((liquid > threshold).to(torch.float64), strength, "nearest", 4.0)
        cover = cover.masked_fill_(cover < 0.8, 0.0).to(torch.float32).unsqueeze(1)
        return to_levels(x.mul_(1 - cover).add_(cover * colour))
    # Values above one wrap around, as in the cast to bytes of the published code.
    drops = liquid.mul_(255).to(torch.int32).bitwise_and_(255)
    shine = _relief(drops) * drops
    brightest = shine.amax(dim=(1, 2), keepdim=True).clamp_(min=1)
    shine = shine.div_(brightest).mul_(strength).unsqueeze(1)
    return to_levels(x.add_(shine * colour))


def _relief(drops: Tensor) -> Tensor:
    """Return the shading of the drops, (N, H, W): the embossed distance to their edges."""
    distance = chamfer_distance(canny_edges(drops)).clamp_(max=_FAR)
    levels = equalise(filter2d(distance.div_(9), _BOX).add_(1e-4).to(torch.int32))
    lit = filter2d(levels, _EMBOSS).clamp_(0, 255)
    return filter2d(lit, _BOX).add_(4).div_(9, rounding_mode="floor")


def canny_edges(levels: Tensor) -> Tensor:
    """Return the Canny edges of (N, H, W) int32 levels as a boolean mask, with 3x3 Sobel filters and the L1 norm."""
    height, width = levels.shape[-2:]
    x = pad(levels.to(torch.float32).unsqueeze(1), (1, 1, 1, 1), mode="replicate")[:, 0].to(torch.int32)
    down = x[:, :-2] + 2 * x[:, 1:-1] + x[:, 2:]
    gx = down[:, :, 2:] - down[:, :, :-2]
    across = x[:, :, :-2] + 2 * x[:, :, 1:-1] + x[:, :, 2:]
    gy = across[:, 2:] - across[:, :-2]
    magnitude = gx.abs() + gy.abs()
    around = pad(magnitude, (1, 1, 1, 1))

    def neighbour(dy: int, dx: int) -> Tensor:
        return around[:, 1 + dy : 1 + dy + height, 1 + dx : 1 + dx + width]

    steep = gy.abs() << 15
    tan_22 = gx.abs() * _TAN_22
    tan_67 = tan_22 + (gx.abs() << 16)
    flat = (magnitude > neighbour(0, -1)) & (magnitude >= neighbour(0, 1))
    upright = (magnitude > neighbour(-1, 0)) & (magnitude >= neighbour(1, 0))
    falling = (magnitude > neighbour(-1, -1)) & (magnitude > neighbour(1, 1))
    rising = (magnitude > neighbour(-1, 1)) & (magnitude > neighbour(1, -1))
    slanted = torch.where((gx ^ gy) < 0, rising, falling)
    peak = torch.where(steep < tan_22, flat, torch.where(steep > tan_67, upright, slanted))
    return _connected(peak & (magnitude > _STRONG), peak & (magnitude > _WEAK))


def _connected(strong: Tensor, weak: Tensor) -> Tensor:
    """Grow the strong pixels through the weak ones that touch them."""
    while True:
        rows = strong.clone()
        rows[:, 1:] |= strong[:, :-1]
        rows[:, :-1] |= strong[:, 1:]
        grown = rows.clone()
        grown[:, :, 1:] |= rows[:, :, :-1]
        grown[:, :, :-1] |= rows[:, :, 1:]
        grown &= weak
        if torch.equal(grown, strong):
            return strong
        strong = grown


def chamfer_distance(edges: Tensor) -> Tensor:
    """Return the distance to the nearest edge pixel, in steps of 1, 1.4 and 2.1969 (a knight's move).

    The step distance is a norm that increases with either coordinate, so the nearest edge in each column suffices. The
    norm is the maximum of four linear functions. Distances above 20 are inexact, but exceed 20.
    """
    column = _column_distance(edges)
    best = column.clone()
    width = edges.shape[-1]
    beside = pad(column, (_FAR, _FAR), value=_FAR + 1.0)
    for dx in range(1, min(_FAR, width - 1) + 1):
        nearest = torch.minimum(beside[..., _FAR - dx :][..., :width], beside[..., _FAR + dx :][..., :width])
        norm = torch.maximum(nearest + 0.1969 * dx, (nearest * 0.7969).add_(0.6031 * dx))
        norm = torch.maximum(norm, (nearest * 0.6031).add_(0.7969 * dx), out=norm)
        norm = torch.maximum(norm, nearest.mul_(0.1969).add_(dx), out=norm)
        torch.minimum(best, norm, out=best)
    return best


def _column_distance(edges: Tensor) -> Tensor:
    distance = torch.where(edges, 0.0, float(_FAR + 1))
    height = edges.shape[-2]
    for y in range(1, height):
        distance[:, y] = torch.minimum(distance[:, y], distance[:, y - 1] + 1)
    for y in range(height - 2, -1, -1):
        distance[:, y] = torch.minimum(distance[:, y], distance[:, y + 1] + 1)
    return distance


def equalise(levels: Tensor) -> Tensor:
    """Equalise the histogram of (N, H, W) int32 levels 0 to 255 as OpenCV does: the lowest level becomes 0."""
    n = len(levels)
    flat = levels.reshape(n, -1).to(torch.int64)
    ones = torch.ones_like(flat, dtype=torch.int32)
    counts = torch.zeros(n, 256, dtype=torch.int32, device=levels.device).scatter_add_(1, flat, ones)
    below = counts.cumsum(1)
    lowest = counts.gather(1, flat.amin(dim=1, keepdim=True))
    rest = flat.shape[1] - lowest
    table = (below - lowest).to(torch.float64).mul_(255).div_(rest.clamp(min=1)).round_().to(torch.int32)
    equal = table.gather(1, flat).view(levels.shape)
    return torch.where((rest == 0).view(n, 1, 1), levels, equal)
