"""JPEG compression as in libjpeg, for whole batches on any device.

Entropy coding is lossless, so it is skipped. An image is changed by the colour transform, the chroma subsampling, the
cosine transform, the quantisation of its coefficients, and the inverse steps. libjpeg computes all of these in
integers. Here they are integer matrix products (exact in float64) with the same 13-bit constants and the same rounding,
so that all levels equal those of Pillow.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from densecal.shift.corruptions.constants import Constants
from densecal.shift.corruptions.randomness import Draw

_LUMA_TABLE = """
16 11 10 16 24 40 51 61  12 12 14 19 26 58 60 55  14 13 16 24 40 57 69 56  14 17 22 29 51 87 80 62
18 22 37 56 68 109 103 77  24 35 55 64 81 104 113 92  49 64 78 87 103 121 120 101  72 92 95 98 112 100 103 99
"""
_CHROMA_TABLE = """
17 18 24 47 99 99 99 99  18 21 26 66 99 99 99 99  24 26 56 99 99 99 99 99  47 66 99 99 99 99 99 99
99 99 99 99 99 99 99 99  99 99 99 99 99 99 99 99  99 99 99 99 99 99 99 99  99 99 99 99 99 99 99 99
"""
_BITS = 13  # precision of the constants of the cosine transform
_EXTRA = 2  # additional bits between its two passes


def jpeg_compression(images: Tensor, constants: Constants, draw: Draw) -> Tensor:
    """Compress as baseline JPEG with the standard tables and chroma subsampled by two in both directions."""
    quality = round(constants[0])
    height, width = images.shape[-2:]
    if images.shape[1] == 1:
        return _through_blocks(images[:, 0], quality, chroma=False).unsqueeze(1).to(torch.uint8)
    luma, blue, red = _to_ycc(images)
    luma = _through_blocks(luma, quality, chroma=False)
    halved = _through_blocks(_halve(torch.cat([blue, red])), quality, chroma=True)
    doubled = _double(halved[:, :, : (width + 1) // 2])[:, :height, :width]
    return _to_rgb(luma, *doubled.chunk(2))


def _fix(value: float) -> int:
    return int(value * 65536 + 0.5)


def _to_ycc(images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    r, g, b = images.to(torch.int32).unbind(1)
    centre = (128 << 16) + (1 << 15) - 1
    luma = (r * _fix(0.299) + g * _fix(0.587) + b * _fix(0.114) + (1 << 15)) >> 16
    blue = (r * -_fix(0.16874) + g * -_fix(0.33126) + b * _fix(0.5) + centre) >> 16
    red = (r * _fix(0.5) + g * -_fix(0.41869) + b * -_fix(0.08131) + centre) >> 16
    return luma, blue, red


def _to_rgb(luma: Tensor, blue: Tensor, red: Tensor) -> Tensor:
    y, cb, cr = luma.to(torch.int32), blue - 128, red - 128
    half = 1 << 15
    r = y + ((cr * _fix(1.402) + half) >> 16)
    g = y + ((cb * -_fix(0.34414) + cr * -_fix(0.71414) + half) >> 16)
    b = y + ((cb * _fix(1.772) + half) >> 16)
    return torch.stack([r, g, b], dim=1).clamp_(0, 255).to(torch.uint8)


def _extend(x: Tensor, rows: int, columns: int) -> Tensor:
    """Repeat the last row and column of (N, H, W)."""
    if rows:
        x = torch.cat([x, x[:, -1:].expand(-1, rows, -1)], dim=1)
    if columns:
        x = torch.cat([x, x[:, :, -1:].expand(-1, -1, columns)], dim=2)
    return x


def _halve(chroma: Tensor) -> Tensor:
    """Average 2x2 pixels. As in libjpeg, halves are rounded down and up alternately to avoid a bias."""
    height, width = chroma.shape[-2:]
    chroma = _extend(chroma, -height % 2, -width % 16)
    total = chroma[:, ::2] + chroma[:, 1::2]
    total = total[:, :, ::2] + total[:, :, 1::2]
    turn = torch.arange(total.shape[-1], device=chroma.device, dtype=torch.int32) % 2 + 1
    return total.add_(turn) >> 2


def _double(chroma: Tensor) -> Tensor:
    """Upsample by two with libjpeg's triangle filter: 3/4 of the nearer and 1/4 of the farther pixel."""
    x = chroma.to(torch.int32)
    if x.shape[2] <= 2:  # libjpeg repeats the pixels of images this narrow
        return x.repeat_interleave(2, dim=1).repeat_interleave(2, dim=2)
    near = x * 3
    up = torch.cat([x[:, :1], x[:, :-1]], dim=1)
    down = torch.cat([x[:, 1:], x[:, -1:]], dim=1)
    rows = torch.stack([near + up, near + down], dim=2).flatten(1, 2)
    left = torch.cat([rows[:, :, :1], rows[:, :, :-1]], dim=2)
    right = torch.cat([rows[:, :, 1:], rows[:, :, -1:]], dim=2)
    near = rows * 3
    return torch.stack([(near + left).add_(8) >> 4, (near + right).add_(7) >> 4], dim=3).flatten(2, 3)


def _through_blocks(x: Tensor, quality: int, *, chroma: bool) -> Tensor:
    """Transform (N, H, W) levels in blocks of 8x8, quantise the coefficients and transform back."""
    n, height, width = x.shape
    x = _extend(x, -height % 8, -width % 8)
    down, across = x.shape[1] // 8, x.shape[2] // 8
    blocks = x.view(n, down, 8, across, 8).transpose(2, 3).to(torch.float64).sub_(128)
    dct = cosine_matrix(x.device)
    table = _quantisation(quality, chroma, x.device)
    # Blocks are (y, x), then (frequency x, y), then (frequency x, frequency y), and the reverse on the way back.
    step = _descale(blocks.reshape(-1, 8) @ dct.mT, _BITS - _EXTRA)
    step = _descale(_turn(step) @ dct.mT, _BITS + _EXTRA).view(-1, 8, 8)
    coefficients = (step.abs().mul_(2).add_(table * 8).div_(table * 16).floor_()).mul_(step.sign()).mul_(table)
    step = _descale(coefficients.view(-1, 8) @ dct, _BITS - _EXTRA)
    step = _descale(_turn(step) @ dct, _BITS + _EXTRA + 3).add_(128).clamp_(0, 255)
    return step.view(n, down, across, 8, 8).transpose(2, 3).reshape(x.shape)[:, :height, :width]


def _turn(blocks: Tensor) -> Tensor:
    return blocks.view(-1, 8, 8).mT.reshape(-1, 8)


def _descale(x: Tensor, bits: int) -> Tensor:
    return x.add_(2.0 ** (bits - 1)).mul_(2.0**-bits).floor_()


@lru_cache(maxsize=8)
def cosine_matrix(device: torch.device) -> Tensor:
    """Return libjpeg's 8x8 cosine transform, scaled by 2^13, as one integer matrix.

    libjpeg's factorisation (Loeffler, Ligtenberg and Moschytz) rounds its eleven constants to 13 bits. All other steps
    of a pass are exact, so a pass is a product with this matrix and one rounding.
    """

    def fix(value: float) -> int:
        return round(value * (1 << _BITS))

    even = np.zeros((4, 4), dtype=np.int64)  # outputs 0, 2, 4, 6 from d0 + d7, d1 + d6, d2 + d5, d3 + d4
    one, turn = 1 << _BITS, fix(0.541196100)
    even[0], even[2] = one, (one, -one, -one, one)
    large, small = turn + fix(0.765366865), turn - fix(1.847759065)
    even[1], even[3] = (large, turn, -turn, -large), (turn, small, -small, -turn)
    # Outputs 1, 3, 5, 7 from d0 - d7, d1 - d6, d2 - d5, d3 - d4: a shared rotation, pairwise rotations, a diagonal.
    odd = np.full((4, 4), fix(1.175875602), dtype=np.int64)
    odd[np.arange(4), np.arange(4)] += [fix(v) for v in (1.501321110, 3.072711026, 2.053119869, 0.298631336)]
    pairs = {(0, 3): 0.899976223, (1, 2): 2.562915447, (1, 3): 1.961570560, (0, 2): 0.390180644}
    for pair, value in pairs.items():
        odd[np.ix_(pair, pair)] -= fix(value)
    matrix = np.empty((8, 8))
    matrix[0::2, :4], matrix[0::2, 4:] = even, even[:, ::-1]
    matrix[1::2, :4], matrix[1::2, 4:] = odd, -odd[:, ::-1]
    return torch.from_numpy(matrix).to(device)


@lru_cache(maxsize=64)
def _quantisation(quality: int, chroma: bool, device: torch.device) -> Tensor:
    """Return the standard table at a quality, transposed like the blocks: (frequency x, frequency y)."""
    base = np.array((_CHROMA_TABLE if chroma else _LUMA_TABLE).split(), dtype=np.int64).reshape(8, 8)
    quality = min(max(quality, 1), 100)
    percent = 5000 // quality if quality < 50 else 200 - 2 * quality
    table = ((base * percent + 50) // 100).clip(1, 255)
    return torch.from_numpy(np.ascontiguousarray(table.T, dtype=np.float64)).to(device)
