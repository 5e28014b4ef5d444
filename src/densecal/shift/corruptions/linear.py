"""Linear filters as small matrices for rows and columns, exact in any order of summation.

Every separable filter here (Gaussian blur, zoom, box resampling) is `A x B^T` with `A` of (out, H) and `B` of
(out, W). Their weights are rounded to multiples of 2^-20. A level has 8 bits, so two passes need 48 bits, and
float64 represents every partial sum exactly, even over 32 such filters. Therefore the result does not depend on the
order of summation on a device.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

import numpy as np
import torch
from scipy import sparse
from scipy.ndimage import gaussian_filter1d
from torch import Tensor

_STEP = 2.0**-20
PILLOW_ONE = 2.0**22


def dyadic(weights: np.ndarray) -> np.ndarray:
    """Round weights to multiples of 2^-20, keeping each row's sum at exactly one."""
    scaled = np.rint(weights / _STEP)
    rows = np.arange(len(scaled))
    # The remainder is added to the largest weight, where its relative effect is smallest.
    scaled[rows, weights.argmax(axis=1)] += 1 / _STEP - scaled.sum(axis=1)
    return np.asarray(scaled * _STEP)


def separable(x: Tensor, matrix: Callable[..., Tensor], *options: float | str) -> Tensor:
    """Filter the rows and columns of (..., H, W) in float64, by the matrices for their lengths."""
    rows, columns = (matrix(size, *options, x.device) for size in x.shape[-2:])
    return rows @ (x.to(torch.float64) @ columns.mT)


def pixel_map(x: Tensor, weights: Tensor) -> Tensor:
    """Apply a sparse (H W, H W) matrix to (..., H, W) in float64."""
    pixels = x.reshape(-1, weights.shape[1]).to(torch.float64)
    mapped: Tensor = torch.sparse.mm(weights, pixels.mT.contiguous())
    return mapped.mT.reshape(x.shape)


def gaussian_filter(x: Tensor, sigma: float, mode: str, truncate: float) -> Tensor:
    """Filter (..., H, W) in float64; `mode` is "nearest" (repeats the border) or "reflect" (d c b a | a b c d)."""
    return separable(x, _gaussian_matrix, sigma, mode, truncate)


@lru_cache(maxsize=64)
def _gaussian_matrix(size: int, sigma: float, mode: str, truncate: float, device: torch.device) -> Tensor:
    matrix = gaussian_filter1d(np.eye(size), sigma, axis=0, mode=mode, truncate=truncate)
    return torch.from_numpy(dyadic(matrix)).to(device)


def _zoom_taps(size: int, factor: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return for each pixel of a zoomed line its two source pixels and the weight of the second."""
    crop = math.ceil(size / factor)
    top = (size - crop) // 2
    zoomed = round(crop * factor)
    trim = (zoomed - size) // 2
    step = (crop - 1) / (zoomed - 1) if zoomed > 1 else 0.0
    place = (np.arange(size) + trim) * step
    low = np.minimum(np.floor(place).astype(int), crop - 1)
    return top + low, top + np.minimum(low + 1, crop - 1), place - low


@lru_cache(maxsize=64)
def zoom_matrix(size: int, factor: float, device: torch.device) -> Tensor:
    """Return the (size, size) matrix that crops the centre and zooms it linearly by `factor`."""
    first, second, share = _zoom_taps(size, factor)
    matrix = np.zeros((size, size))
    rows = np.arange(size)
    np.add.at(matrix, (rows, first), 1 - share)
    np.add.at(matrix, (rows, second), share)
    return torch.from_numpy(dyadic(matrix)).to(device)


def zoomed(x: Tensor, factor: float) -> Tensor:
    """Zoom (N, C, H, W) floats into their centre, tap by tap, for images too large for a matrix of all pixels."""
    for dim in (2, 3):
        first, second, share = (torch.from_numpy(part).to(x.device) for part in _zoom_taps(x.shape[dim], factor))
        share = share.to(x.dtype).view((-1, 1) if dim == 2 else (1, -1))
        x = x.index_select(dim, first).mul_(1 - share).add_(x.index_select(dim, second).mul_(share))
    return x


@lru_cache(maxsize=4)
def zoom_sum(height: int, width: int, factors: tuple[float, ...], device: torch.device) -> Tensor:
    """Return the sparse matrix that sums the zooms of an image by all factors."""
    cpu = torch.device("cpu")
    pairs = ((zoom_matrix(height, factor, cpu), zoom_matrix(width, factor, cpu)) for factor in factors)
    entries = sum(sparse.kron(*(sparse.csr_array(one.numpy()) for one in pair), "csr") for pair in pairs).tocoo()
    places = torch.from_numpy(np.stack([entries.row, entries.col]).astype(np.int64))
    values = torch.from_numpy(entries.data)
    return torch.sparse_coo_tensor(places, values, entries.shape, check_invariants=True).coalesce().to(device)


@lru_cache(maxsize=64)
def box_matrix(source: int, target: int, device: torch.device) -> Tensor:
    """Return the (target, source) matrix of Pillow's box resampling, with its 22-bit integer weights."""
    scale = source / target
    support = 0.5 * max(scale, 1.0)
    matrix = np.zeros((target, source))
    for row in range(target):
        centre = (row + 0.5) * scale
        first = max(int(centre - support + 0.5), 0)
        last = min(int(centre + support + 0.5), source)
        distance = (np.arange(first, last) - centre + 0.5) / max(scale, 1.0)
        weights = ((distance > -0.5) & (distance <= 0.5)).astype(float)
        matrix[row, first:last] = weights / weights.sum()
    return torch.from_numpy(np.floor(0.5 + matrix * PILLOW_ONE)).to(device)


def filter2d(x: Tensor, kernel: np.ndarray) -> Tensor:
    """Correlate (..., H, W) levels with a small odd kernel; borders reflect (d c b | a b c d)."""
    pad = kernel.shape[0] // 2
    height, width = x.shape[-2:]
    rows, columns = (_reflected(size, pad, x.device) for size in (height, width))
    padded = x.index_select(-2, rows).index_select(-1, columns)
    if kernel.size > 81:
        return _filter_by_fft(padded, kernel, height, width)
    padded = padded.to(torch.float32)
    total = torch.zeros(x.shape, dtype=torch.float32, device=x.device)
    for i, j in zip(*np.nonzero(kernel), strict=True):
        total += padded[..., i : i + height, j : j + width] * float(kernel[i, j])
    return total


@lru_cache(maxsize=64)
def _reflected(size: int, pad: int, device: torch.device) -> Tensor:
    return torch.from_numpy(np.pad(np.arange(size), pad, mode="reflect")).to(device)


def _filter_by_fft(padded: Tensor, kernel: np.ndarray, height: int, width: int) -> Tensor:
    # In float64 the rounding errors of the transform are about 1e-13 of a level, too small to change a level.
    shape = padded.shape[-2:]
    weights = torch.from_numpy(np.ascontiguousarray(kernel[::-1, ::-1])).to(padded.device)
    spectrum = torch.fft.rfft2(padded.to(torch.float64)) * torch.fft.rfft2(weights, s=shape)
    edge = kernel.shape[0] - 1
    filtered: Tensor = torch.fft.irfft2(spectrum, s=shape)
    return filtered[..., edge : edge + height, edge : edge + width]
