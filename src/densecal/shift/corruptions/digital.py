"""Digital: contrast, saturate, elastic transform and pixelate (JPEG is in ``jpeg.py``)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import grid_sample

from densecal.shift.batches import cut_off, to_levels, to_unit
from densecal.shift.corruptions.constants import Constants
from densecal.shift.corruptions.linear import PILLOW_ONE, box_matrix, gaussian_filter
from densecal.shift.corruptions.randomness import Draw


def contrast(images: Tensor, constants: Constants, draw: Draw) -> Tensor:
    """Reduce each channel's distance to its mean."""
    pixels = images.shape[-2] * images.shape[-1]
    mean = images.sum(dim=(2, 3), keepdim=True, dtype=torch.int64).to(torch.float32).div_(pixels)
    return cut_off(images.to(torch.float32).sub_(mean).mul_(constants[0]).add_(mean))


def saturate(images: Tensor, constants: Constants, draw: Draw) -> Tensor:
    """Scale and shift S of HSV.

    At constant V and hue, the distance of each channel to V is proportional to S. Grey pixels (hue 0) turn red.
    """
    factor, offset = constants
    x = to_unit(images)
    value = x.amax(dim=1, keepdim=True)
    distance = value - x
    spread = distance.amax(dim=1, keepdim=True)
    grey = spread == 0
    saturation = spread / value.masked_fill(value == 0, 1.0)
    wanted = (saturation * factor).add_(offset).clamp_(0.0, 1.0)
    # distance * S' / S equals S' * V * distance / spread, which is defined where S is 0.
    share = distance.div_(spread.masked_fill(grey, 1.0))
    share[:, 1:] += grey
    return to_levels(value - share.mul_(wanted.mul_(value)))


def pixelate(images: Tensor, constants: Constants, draw: Draw) -> Tensor:
    """Scale down and up with a box filter, with the same levels as Pillow."""
    height, width = images.shape[-2:]
    small = max(int(height * constants[0]), 1), max(int(width * constants[0]), 1)
    x = _resize(_resize(images, small), (height, width))
    return x.to(torch.uint8)


def _resize(x: Tensor, size: tuple[int, int]) -> Tensor:
    rows, columns = (box_matrix(a, b, x.device) for a, b in zip(x.shape[-2:], size, strict=True))
    # Pillow rounds to levels between the two passes.
    across = (x.to(torch.float64) @ columns.mT).add_(PILLOW_ONE / 2).div_(PILLOW_ONE).floor_()
    return (rows @ across).add_(PILLOW_ONE / 2).div_(PILLOW_ONE).floor_()


def elastic_transform(images: Tensor, constants: Constants, draw: Draw) -> Tensor:
    """Apply an affine map of three jittered points, then displace each pixel by smoothed noise."""
    n, _, height, width = images.shape
    size = min(height, width)
    # The published constants for 224x224 are multiples of 244, a typo that is part of the published data.
    unit = size * (1 + (244 / 224 - 1) * min(max((size - 32) / (224 - 32), 0.0), 1.0))
    alpha, sigma, jitter = (constant * unit for constant in constants)
    x = to_unit(images)
    y_grid = torch.arange(height, dtype=torch.float64, device=images.device).view(1, height, 1)
    x_grid = torch.arange(width, dtype=torch.float64, device=images.device).view(1, 1, width)
    a = _inverse_affine(draw, jitter, height, width)
    source_x = x_grid * a[:, 0] + y_grid * a[:, 1] + a[:, 2]
    source_y = x_grid * a[:, 3] + y_grid * a[:, 4] + a[:, 5]
    x = _sample(x, source_x, source_y, align_corners=True)
    if alpha > 0:
        noise = draw.uniform(1, 2 * height * width).mul_(2).sub_(1).view(n, 2, height, width)
        shift = gaussian_filter(noise, sigma, "reflect", 3.0).mul_(alpha)
        x = _sample(x, x_grid + shift[:, 0], y_grid + shift[:, 1], align_corners=False)
    return to_levels(x)


def _inverse_affine(draw: Draw, jitter: float, height: int, width: int) -> Tensor:
    """Return (N, 6, 1, 1) maps from output to source pixels: x' = a0 x + a1 y + a2, y' = a3 x + a4 y + a5.

    The three points are (c + s, c' + s), (c + s, c' - s) and (c - s, c' - s) around the centre (c, c'), with s a
    third of the shorter side, and each coordinate is shifted by up to `jitter`. The published code takes the centre as
    (height, width) instead of (x, y), which matters only for non-square images.
    """
    c, d, s = height // 2, width // 2, min(height, width) // 3
    before = np.array([[c + s, d + s, 1], [c + s, d - s, 1], [c - s, d - s, 1]], dtype=np.float64)
    inverse = np.linalg.inv(before)
    shift = draw.uniform(0, 6).to(torch.float64).mul_(2).sub_(1).mul_(jitter)
    after = shift + torch.from_numpy(before[:, :2].reshape(-1)).to(draw.device)
    px, py = after[:, 0::2], after[:, 1::2]
    # Row r of the forward map is inverse @ (the three shifted coordinates).
    weights = torch.from_numpy(inverse).to(draw.device)
    a, b, e = ((weights[r] * px).sum(1) for r in range(3))
    f, g, h = ((weights[r] * py).sum(1) for r in range(3))
    det = a * g - b * f
    rows = [g / det, -b / det, (b * h - g * e) / det, -f / det, a / det, (f * e - a * h) / det]
    return torch.stack(rows, dim=1)[:, :, None, None]


def _sample(x: Tensor, source_x: Tensor, source_y: Tensor, *, align_corners: bool) -> Tensor:
    """Interpolate bilinearly; borders reflect at the centres (`align_corners`) or the outer edges of the pixels."""
    height, width = x.shape[-2:]
    if align_corners:
        u = source_x.mul_(2 / max(width - 1, 1)).sub_(1)
        v = source_y.mul_(2 / max(height - 1, 1)).sub_(1)
    else:
        u = source_x.mul_(2).add_(1).div_(width).sub_(1)
        v = source_y.mul_(2).add_(1).div_(height).sub_(1)
    grid = torch.stack([u, v], dim=-1).to(x.dtype)
    return grid_sample(x, grid, mode="bilinear", padding_mode="reflection", align_corners=align_corners)
