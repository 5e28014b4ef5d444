"""Batches of images: conversion to planes (N, C, H, W) or numbers from 0 to 1 and back, and parallel work in parts.

The threads of torch synchronise after every operation. For small arrays this takes longer than the operation itself,
especially when other programs use the same cores. Here each thread processes its own part of the batch.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

Images = TypeVar("Images", NDArray[np.uint8], Tensor)
Index = ArrayLike | Tensor

# Values per part: intermediate results fit into the CPU cache, or use a GPU fully without filling its memory.
_VALUES_CPU = 1 << 18
_VALUES_GPU = 1 << 25
# Levels are truncated, not rounded, as in the published generator. The guard keeps rounding errors from decreasing an
# integer level by one, which would make the result depend on the device and the batch.
_GUARD = 2.0**-10
LUMA = (0.299, 0.587, 0.114)

_lock = threading.Lock()
_pools: dict[int, ThreadPoolExecutor] = {}

if hasattr(os, "register_at_fork"):
    # A forked process inherits the pool object but not its threads.
    os.register_at_fork(after_in_child=_pools.clear)


@dataclass(frozen=True)
class Batch:
    """Images as planes (N, 1 or 3, H, W), and what is needed to restore their layout."""

    planes: Tensor
    index: np.ndarray
    channels_last: bool

    @classmethod
    def of(cls, images: NDArray[np.uint8] | Tensor, index: Index | None) -> Batch:
        """Return checked images as planes, with their checked index."""
        if not isinstance(images, np.ndarray | Tensor):
            raise TypeError(
                f"images must be a NumPy array or a torch tensor, not {type(images).__name__}. "
                f"For a PIL image use numpy.asarray(image)[None]."
            )
        if str(images.dtype).removeprefix("torch.") != "uint8":
            raise TypeError(f"images must be uint8 levels from 0 to 255, not {images.dtype}.")
        if isinstance(images, np.ndarray):
            # torch needs writable memory, so a read-only memory map is copied.
            images = torch.from_numpy(np.require(images, requirements=["C", "W"]))
        tensor = images
        shape = tuple(tensor.shape)
        channels_last = tensor.ndim == 4 and shape[-1] in (1, 3) and not (shape[1] in (1, 3) and shape[2] > 3)
        grey = tensor.ndim == 3 and shape[-1] > 3
        if not (grey or channels_last or (tensor.ndim == 4 and shape[1] in (1, 3))) or 0 in shape[1:]:
            raise ValueError(
                f"images must be (N, H, W, 3), (N, 3, H, W), or grey (N, H, W), (N, H, W, 1) or (N, 1, H, W); got "
                f"{shape}. A single image needs a batch axis: images[None]."
            )
        if grey and shape[0] == 3:
            raise ValueError(
                f"images of shape {shape} may be one colour image or three grey ones. Pass image[None] for one colour "
                "image, images[:, None] for three grey ones."
            )
        if grey:
            tensor = tensor.unsqueeze(1)
        planes = tensor.permute(0, 3, 1, 2) if channels_last else tensor
        return cls(planes.contiguous(), _checked_index(index, shape[0]), channels_last)

    def like(self, planes: Tensor, images: Images) -> Images:
        """Return a copy of the planes in the layout and array type of `images`, the input of the batch."""
        result = planes.permute(0, 2, 3, 1) if self.channels_last else planes
        result = result.reshape(images.shape).clone(memory_format=torch.contiguous_format)
        return result.numpy() if isinstance(images, np.ndarray) else result


def _checked_index(index: Index | None, count: int) -> np.ndarray:
    if index is None:
        return np.arange(count)
    numbers = index.cpu().numpy() if isinstance(index, Tensor) else np.asarray(index)
    if numbers.shape != (count,) or not np.issubdtype(numbers.dtype, np.integer):
        raise ValueError(
            f"index must hold one integer for each of the {count} images; got shape {numbers.shape} and "
            f"dtype {numbers.dtype}."
        )
    return numbers


def run_in_parts(work: Callable[[slice], None], planes: Tensor, count: int) -> None:
    """Call `work` on slices of `count` images: sequentially on a GPU, on as many threads as torch has on a CPU."""
    parts = _parts(planes, count)
    threads = torch.get_num_threads()
    if planes.is_cuda or min(threads, len(parts)) < 2:
        for part in parts:
            work(part)
        return
    inference = torch.is_inference_mode_enabled()

    def alone(part: slice) -> None:
        # Inference mode is set per thread, and tensors created in it may only be modified in it.
        with torch.inference_mode(inference):
            work(part)

    for done in [_pool(threads).submit(alone, part) for part in parts]:
        done.result()


def _parts(planes: Tensor, count: int) -> list[slice]:
    """Return slices of `count` images of the size of `planes`, each processed at once."""
    values = _VALUES_GPU if planes.is_cuda else _VALUES_CPU
    size = max(values // max(planes[:1].numel(), 1), 1)
    if not planes.is_cuda:
        # One part per core, unless the parts become too small to be worth a thread.
        size = min(size, max(-(-count // torch.get_num_threads()), size // 16, 1))
    return [slice(start, start + size) for start in range(0, count, size)]


def _pool(threads: int) -> ThreadPoolExecutor:
    with _lock:
        if threads not in _pools:
            ready = threading.Barrier(threads + 1)

            def start() -> None:
                torch.set_num_threads(1)
                ready.wait()

            pool = ThreadPoolExecutor(threads, thread_name_prefix="densecal")
            for _ in range(threads):
                pool.submit(start)
            ready.wait()
            # The pool's threads keep their own setting. Restore the default for threads that start later.
            torch.set_num_threads(threads)
            _pools[threads] = pool
        return _pools[threads]


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
