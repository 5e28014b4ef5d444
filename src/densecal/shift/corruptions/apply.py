"""Corrupt a batch of images."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from densecal.shift.corruptions import blur, digital, jpeg, noise, weather
from densecal.shift.corruptions.batches import Batch, chunks
from densecal.shift.corruptions.constants import CORRUPTIONS, Constants
from densecal.shift.corruptions.frost import overlays
from densecal.shift.corruptions.keys import sample_keys
from densecal.shift.corruptions.levels import cut_off, luma
from densecal.shift.corruptions.randomness import Draw
from densecal.shift.corruptions.spatter import spatter
from densecal.shift.corruptions.workers import run_parts

Images = TypeVar("Images", np.ndarray, Tensor)
Kernel = Callable[[Tensor, Constants, Draw], Tensor]

_KERNELS: Mapping[str, Kernel] = MappingProxyType(
    {
        "gaussian_noise": noise.gaussian_noise,
        "shot_noise": noise.shot_noise,
        "impulse_noise": noise.impulse_noise,
        "speckle_noise": noise.speckle_noise,
        "gaussian_blur": blur.gaussian_blur,
        "defocus_blur": blur.defocus_blur,
        "motion_blur": blur.motion_blur,
        "zoom_blur": blur.zoom_blur,
        "snow": weather.snow,
        "fog": weather.fog,
        "brightness": weather.brightness,
        "contrast": digital.contrast,
        "saturate": digital.saturate,
        "spatter": spatter,
        "elastic_transform": digital.elastic_transform,
        "pixelate": digital.pixelate,
        "jpeg_compression": jpeg.jpeg_compression,
    }
)
_IN_COLOUR = ("frost", "saturate", "spatter")


def corrupt(
    images: Images,
    name: str,
    severity: int,
    seed: int = 0,
    *,
    index: np.ndarray | Tensor | None = None,
    frost_dir: str | os.PathLike[str] | None = None,
) -> Images:
    """Corrupt images as the published CIFAR-10-C and ImageNet-C sets do.

    Parameters
    ----------
    images
        uint8 NumPy array or torch tensor (CPU or CUDA): (N, H, W, 3), (N, 3, H, W), or grey (N, H, W), (N, H, W, 1)
        or (N, 1, H, W).
    name
        One of `CORRUPTIONS`.
    severity
        1 to 5; 0 gives the images back unchanged.
    seed
        Another seed gives other noise.
    index
        The samples' numbers in their data set, (N,) integers; 0 to N - 1 when left out. A sample's result depends on
        (seed, name, severity, its index) alone, not on the batch it comes in.
    frost_dir
        Folder with the published frost overlays (`frost1.png` ... `frost5.jpg`); without it densecal's own are used.

    Returns
    -------
    images
        New images: same kind, shape and device, uint8.

    Notes
    -----
    The constants are the published ones for 32x32 and 224x224 and go by the shorter side for other sizes (see
    `Corruption.constants`). A grey image stays grey: frost, saturate and spatter, which add colour, are computed in
    colour and turned back to grey.

    Examples
    --------
    >>> import numpy as np
    >>> from densecal.shift import corrupt
    >>> images = np.full((2, 32, 32, 3), 128, dtype=np.uint8)
    >>> foggy = corrupt(images, "fog", severity=3, seed=0)
    >>> foggy.shape, foggy.dtype
    ((2, 32, 32, 3), dtype('uint8'))
    >>> alone = corrupt(images[1:], "fog", severity=3, seed=0, index=np.array([1]))
    >>> bool((alone[0] == foggy[1]).all())
    True
    """
    if name not in CORRUPTIONS:
        raise ValueError(f"name={name!r} is no corruption; choose one of: {', '.join(CORRUPTIONS)}.")
    if severity not in range(6) or isinstance(severity, bool):
        raise ValueError(f"severity={severity!r}: it must be an integer from 0 (unchanged) to 5.")
    batch = Batch.of(images, index)
    if severity == 0:
        return batch.like(batch.planes, images)
    planes = batch.planes
    height, width = planes.shape[-2:]
    constants = CORRUPTIONS[name].constants(severity, min(height, width))
    kernel = _kernel(name, height, width, frost_dir, planes.device)
    keys = sample_keys(batch.index, seed, name, severity)
    result = torch.empty_like(planes)

    def work(part: slice) -> None:
        result[part] = _corrupt_part(kernel, planes[part], constants, Draw(keys[part], planes.device), name)

    run_parts(work, chunks(planes), planes.device)
    return batch.like(result, images)


def _kernel(
    name: str, height: int, width: int, frost_dir: str | os.PathLike[str] | None, device: torch.device
) -> Kernel:
    if name != "frost":
        return _KERNELS[name]
    ice = overlays(height, width, None if frost_dir is None else os.fspath(frost_dir), device)
    return lambda images, constants, draw: weather.frost(images, constants, draw, ice)


def _corrupt_part(kernel: Kernel, planes: Tensor, constants: Constants, draw: Draw, name: str) -> Tensor:
    if planes.shape[1] == 3 or name not in _IN_COLOUR:
        return kernel(planes, constants, draw)
    coloured = kernel(planes.expand(-1, 3, -1, -1), constants, draw)
    return cut_off(luma(coloured.to(torch.float32)))
