"""Corrupt a batch of images."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from densecal.shift.batches import Batch, Images, Index, cut_off, luma, run_in_parts
from densecal.shift.corruptions import blur, digital, jpeg, noise, spatter, weather
from densecal.shift.corruptions.constants import CORRUPTIONS, Constants, check_corruption
from densecal.shift.corruptions.frost import overlays
from densecal.shift.corruptions.randomness import Draw
from densecal.shift.random_keys import sample_keys

Kernel = Callable[[Tensor, Constants, Draw], Tensor]

# Each corruption is a function of the same name in one of these modules.
_KERNELS: dict[str, Kernel] = {
    name: getattr(module, name)
    for module in (noise, blur, weather, spatter, digital, jpeg)
    for name in CORRUPTIONS
    if hasattr(module, name)
}
_ADD_COLOUR = ("frost", "saturate", "spatter")


def corrupt(
    images: Images,
    name: str,
    severity: int,
    seed: int = 0,
    *,
    index: Index | None = None,
    frost_dir: str | os.PathLike[str] | None = None,
) -> Images:
    """Apply one of the corruptions of the published CIFAR-10-C and ImageNet-C.

    The constants are the published ones for 32x32 and 224x224. For other sizes they depend on the shorter side (see
    `Corruption.constants`). Grey images remain grey.

    Parameters
    ----------
    images
        uint8 NumPy array or torch tensor (CPU or CUDA): (N, H, W, 3), (N, 3, H, W), or grey (N, H, W), (N, H, W, 1)
        or (N, 1, H, W). Three grey images need their channel axis.
    name
        One of `CORRUPTIONS`.
    severity
        1 to 5; 0 returns the images unchanged.
    seed
        Seed of the random numbers.
    index
        Positions of the samples in their data set, (N,) integers; by default 0 to N - 1. The result depends only on
        (seed, name, severity, index), not on the batch.
    frost_dir
        Folder with the published frost overlays (`frost1.png` ... `frost5.jpg`); by default generated ones are used.

    Returns
    -------
    images
        New uint8 images of the same array type, shape and device.

    Examples
    --------
    >>> import numpy as np
    >>> from densecal.shift import corrupt
    >>> images = np.full((2, 32, 32, 3), 128, dtype=np.uint8)
    >>> foggy = corrupt(images, "fog", severity=3)
    >>> alone = corrupt(images[1:], "fog", severity=3, index=[1])
    >>> bool((alone[0] == foggy[1]).all())
    True
    """
    check_corruption(name, severity)
    batch = Batch.of(images, index)
    result = batch.planes if severity == 0 else _corrupt(batch, name, severity, seed, frost_dir)
    return batch.like(result, images)


def _corrupt(batch: Batch, name: str, severity: int, seed: int, frost_dir: str | os.PathLike[str] | None) -> Tensor:
    planes = batch.planes
    height, width = planes.shape[-2:]
    constants = CORRUPTIONS[name].constants(severity, min(height, width))
    kernel = _KERNELS[name]
    if name == "frost":
        folder = None if frost_dir is None else os.fspath(frost_dir)
        kernel = partial(weather.frost, overlays=overlays(height, width, folder, planes.device))
    keys = sample_keys(batch.index, seed, name, severity)
    result = torch.empty_like(planes)
    as_colour = name in _ADD_COLOUR and planes.shape[1] == 1

    def work(part: slice) -> None:
        images = planes[part].expand(-1, 3, -1, -1) if as_colour else planes[part]
        corrupted = kernel(images, constants, Draw(keys[part], planes.device))
        result[part] = cut_off(luma(corrupted.to(torch.float32))) if as_colour else corrupted

    run_in_parts(work, planes, len(planes))
    return result
