"""Weather: snow, fog, frost and brightness (spatter is in ``spatter.py``)."""

from __future__ import annotations

import torch
from torch import Tensor

from densecal.shift.batches import cut_off, luma, to_levels, to_unit
from densecal.shift.corruptions.blur import smear
from densecal.shift.corruptions.constants import Constants
from densecal.shift.corruptions.frost import Overlays
from densecal.shift.corruptions.linear import separable, zoom_matrix
from densecal.shift.corruptions.randomness import Draw


def snow(images: Tensor, constants: Constants, draw: Draw) -> Tensor:
    """Whiten the image and add streaks: thresholded noise, zoomed, blurred downwards, and their 180-degree rotation."""
    loc, scale, zoom, threshold, radius, sigma, blend = constants
    n, _, height, width = images.shape
    layer = draw.normal(0, height * width).view(n, 1, height, width).mul_(scale).add_(loc)
    layer = separable(layer, zoom_matrix, zoom)
    layer = to_levels(layer.masked_fill_(layer < threshold, 0.0))
    flakes = to_unit(smear(layer, radius, sigma, (-135.0, -45.0), draw, stream=1))
    x = to_unit(images)
    white = torch.maximum(x, luma(x).mul(1.5).add_(0.5))
    mixed = x.mul_(blend).add_(white.mul_(1 - blend))
    return to_levels(mixed.add_(flakes).add_(flakes.flip(-2, -1)))


def fog(images: Tensor, constants: Constants, draw: Draw) -> Tensor:
    """Add a plasma fractal and rescale to the original maximum."""
    strength, decay = constants
    height, width = images.shape[-2:]
    x = to_unit(images)
    brightest = x.amax(dim=(1, 2, 3), keepdim=True)
    side = 1 << (max(height, width, 2) - 1).bit_length()
    mist = plasma(side, decay, draw)[:, None, :height, :width].mul(strength)
    return to_levels(x.add_(mist).mul_(brightest).div_(brightest + strength))


def plasma(side: int, decay: float, draw: Draw) -> Tensor:
    """Return diamond-square height maps (N, side, side) on a torus, each scaled to [0, 1]; `side` is a power of two.

    A point is the mean of its four neighbours at the coarser level plus noise. The amplitude of the noise decreases by
    the *square* of `decay` per level, because the published code multiplies by the amplitude twice.
    """
    noise = draw.uniform(0, side * side).mul_(2).sub_(1).view(-1, side, side)
    ground = torch.zeros_like(noise)
    step, amplitude = side, 1.0
    while step >= 2:
        half = step // 2
        corners = ground[:, ::step, ::step]
        pairs = corners + corners.roll(-1, 1)
        ground[:, half::step, half::step] = _middle(
            pairs + pairs.roll(-1, 2), noise[:, half::step, half::step], amplitude
        )
        centres = ground[:, half::step, half::step]
        across = centres + centres.roll(1, 1) + (corners + corners.roll(-1, 2))
        ground[:, ::step, half::step] = _middle(across, noise[:, ::step, half::step], amplitude)
        down = centres + centres.roll(1, 2) + (corners + corners.roll(-1, 1))
        ground[:, half::step, ::step] = _middle(down, noise[:, half::step, ::step], amplitude)
        step, amplitude = half, amplitude / decay**2
    ground -= ground.amin(dim=(1, 2), keepdim=True)
    return ground.div_(ground.amax(dim=(1, 2), keepdim=True))


def _middle(total: Tensor, noise: Tensor, amplitude: float) -> Tensor:
    return total.mul(0.25).add_(noise * amplitude)


def frost(images: Tensor, constants: Constants, draw: Draw, overlays: Overlays) -> Tensor:
    """Add a random crop of a random frost overlay."""
    ice = overlays.cut(draw, images.shape[-2], images.shape[-1]).to(torch.float32)
    return cut_off(images.to(torch.float32).mul_(constants[0]).add_(ice.mul_(constants[1])))


def brightness(images: Tensor, constants: Constants, draw: Draw) -> Tensor:
    """Add to V of HSV. Hue and saturation do not change: all channels of a pixel are scaled alike, black turns grey."""
    x = to_unit(images)
    value = x.amax(dim=1, keepdim=True)
    raised = (value + constants[0]).clamp_(max=1.0)
    black = value == 0
    scaled = x.mul_(raised).div_(value.masked_fill(black, 1.0))
    return to_levels(torch.where(black, raised, scaled))
