"""Random numbers that depend only on (seed, name, severity, sample, position).

The generator is counter-based: every number is a hash of its coordinates, so a sample gets the same numbers in any
batch and on any device. The hash uses 32-bit integers, which wrap around identically on all devices. Normal and Poisson
numbers come from quantile tables computed on the CPU, because devices round logarithms and cosines differently.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from scipy.special import ndtri
from torch import Tensor

from densecal.shift.random_keys import sample_keys

_ROUND_1 = 0x7FEB352D
_ROUND_2 = 0x846CA68B - (1 << 32)
_PARTS = 1 << 16


@lru_cache(maxsize=8)
def normal_quantiles(device: torch.device) -> Tensor:
    """Return the 65,536 mid-quantiles of the normal distribution, scaled to variance one."""
    z = ndtri((np.arange(_PARTS) + 0.5) / _PARTS)
    return torch.from_numpy((z / z.std()).astype(np.float32)).to(device)


@lru_cache(maxsize=64)
def _scrambled_positions(count: int, stream: int, device: torch.device) -> Tensor:
    keys = sample_keys(np.arange(count), "position", stream).astype(np.uint32)
    return torch.from_numpy(keys.view(np.int32)).to(device)


class Draw:
    """The random numbers of a batch: row i belongs to the sample with `keys[i]`, from `sample_keys`."""

    def __init__(self, keys: np.ndarray, device: torch.device) -> None:
        halves = torch.from_numpy(np.ascontiguousarray(keys).view(np.int32).reshape(-1, 2)).to(device)
        self._first = halves[:, :1].contiguous()
        self._second = halves[:, 1:].contiguous()
        self.device = device

    def bits(self, stream: int, count: int) -> Tensor:
        """Return (N, count) int32 with 32 random bits each; different streams give different numbers."""
        x = _scrambled_positions(count, stream, self.device) ^ self._first
        x ^= (x >> 16).bitwise_and_(0xFFFF)
        x *= _ROUND_1
        x ^= (x >> 15).bitwise_and_(0x1FFFF)
        # The second half of the key is added between the rounds: samples share numbers only if all 64 bits agree.
        x += self._second
        x *= _ROUND_2
        x ^= (x >> 16).bitwise_and_(0xFFFF)
        return x

    def halves(self, stream: int, count: int) -> Tensor:
        """Return (N, count) int32 with 16 random bits each: 0 to 65,535."""
        x = self.bits(stream, (count + 1) // 2)
        return torch.cat([x & 0xFFFF, (x >> 16).bitwise_and_(0xFFFF)], dim=1)[:, :count]

    def uniform(self, stream: int, count: int) -> Tensor:
        """Return (N, count) float32, uniform on [0, 1) in steps of 2^-24."""
        return (self.bits(stream, count) >> 8).bitwise_and_(0xFFFFFF).to(torch.float32).mul_(2.0**-24)

    def normal(self, stream: int, count: int) -> Tensor:
        """Return (N, count) float32, normal with mean 0 and variance 1."""
        return lookup(normal_quantiles(self.device), self.halves(stream, count))


def lookup(table: Tensor, positions: Tensor) -> Tensor:
    """Return `table[positions]` by `index_select`, which is faster than indexing."""
    return table.index_select(0, positions.reshape(-1)).view(positions.shape)
