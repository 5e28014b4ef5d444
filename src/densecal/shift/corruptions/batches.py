"""Batches of images in any layout, as planes (N, C, H, W), and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

Images = TypeVar("Images", np.ndarray, Tensor)

# A part's intermediate results stay in the processor's cache, or fill a GPU without filling its memory.
_VALUES_CPU = 1 << 18
_VALUES_GPU = 1 << 25


@dataclass(frozen=True)
class Batch:
    """Images as planes (N, 1 or 3, H, W), with what it takes to give them back in their own layout."""

    planes: Tensor
    index: np.ndarray
    channels_last: bool

    @classmethod
    def of(cls, images: np.ndarray | Tensor, index: np.ndarray | Tensor | None) -> Batch:
        """Check images and index, and lay the images out as planes."""
        if not isinstance(images, np.ndarray | Tensor):
            raise TypeError(
                f"images must be a NumPy array or a torch tensor, not {type(images).__name__}; "
                f"for a PIL image use numpy.asarray(image)[None]."
            )
        if str(images.dtype).removeprefix("torch.") != "uint8":
            raise TypeError(f"images must be uint8 levels from 0 to 255, not {images.dtype}.")
        if isinstance(images, np.ndarray):
            # torch wants memory it may write to, which a memory-mapped file is not.
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
        if grey:
            tensor = tensor.unsqueeze(1)
        planes = tensor.permute(0, 3, 1, 2) if channels_last else tensor
        return cls(planes.contiguous(), _checked_index(index, shape[0]), channels_last)

    def like(self, planes: Tensor, images: Images) -> Images:
        """Return planes in the layout and kind of the images the batch was made of, as a copy of their own."""
        result = planes.permute(0, 2, 3, 1) if self.channels_last else planes
        result = result.reshape(images.shape).clone(memory_format=torch.contiguous_format)
        return result.numpy() if isinstance(images, np.ndarray) else result


def _checked_index(index: np.ndarray | Tensor | None, count: int) -> np.ndarray:
    if index is None:
        return np.arange(count)
    numbers = index.cpu().numpy() if isinstance(index, Tensor) else np.asarray(index)
    if numbers.shape != (count,) or not np.issubdtype(numbers.dtype, np.integer):
        raise ValueError(
            f"index must hold one integer for each of the {count} images; got shape {numbers.shape} and "
            f"dtype {numbers.dtype}."
        )
    return numbers


def chunks(planes: Tensor, count: int | None = None) -> list[slice]:
    """Cut a batch, or `count` images like those of a batch, into parts that are worked on together."""
    count = len(planes) if count is None else count
    values = _VALUES_GPU if planes.is_cuda else _VALUES_CPU
    size = max(values // max(planes[:1].numel(), 1), 1)
    if not planes.is_cuda:
        # A part for every core, unless that would make parts too small to be worth a thread.
        size = min(size, max(-(-count // torch.get_num_threads()), size // 16, 1))
    return [slice(start, start + size) for start in range(0, count, size)]
