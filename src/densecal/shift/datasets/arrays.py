"""A data set whose images lie in one array."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from densecal.shift.datasets.base import Dataset
from densecal.shift.datasets.checks import Image, check_class_labels, three_floats


class ImageArrays(Dataset):
    """A data set whose images lie in one array: your own arrays, or the base of the CIFAR readers.

    Parameters
    ----------
    images : array of uint8, shape (N, H, W, 3)
        The images; a memory-mapped array stays on disk.
    labels : array of int, shape (N,)
        The labels, from 0.
    classes : sequence of str, optional
        Class names; without them the classes are called "0", "1", ... up to the largest label.
    name, split : str, optional
        What to call the set in tables.
    mean, std : three floats, optional
        Normalisation; ImageNet's without it.

    Examples
    --------
    >>> import numpy as np
    >>> ImageArrays(np.zeros((3, 8, 8, 3), np.uint8), [0, 1, 1], name="mine")
    ImageArrays('mine', 3 images, 2 classes)
    """

    def __init__(
        self,
        images: ArrayLike,
        labels: ArrayLike,
        classes: Sequence[str] | None = None,
        *,
        name: str = "arrays",
        split: str = "",
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
    ) -> None:
        pixels = np.asanyarray(images)
        if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[-1] != 3:
            raise ValueError(
                f"images must be a uint8 array of shape (N, H, W, 3), got {pixels.dtype} of shape {pixels.shape}; "
                "for (N, 3, H, W) use images.transpose(0, 2, 3, 1), for pixels in [0, 1] (255 * images).round()"
            )
        self.images: Image = pixels
        self.labels = check_class_labels(labels, len(pixels), None if classes is None else len(classes), name)
        count = int(self.labels.max(initial=-1)) + 1
        self.classes = tuple(str(i) for i in range(count)) if classes is None else tuple(classes)
        self.name, self.split = name, split
        if mean is not None:
            self.mean = three_floats(mean, "mean")
        if std is not None:
            self.std = three_floats(std, "std")

    def _read(self, position: int) -> Image:
        # A copy: the array may be mapped read-only, and writing to a sample must never change the data set.
        return np.array(self.images[position])

    def _stack(self, positions: NDArray[np.int64]) -> Image:
        return np.asarray(self.images[positions])

    def _read_many(self, positions: NDArray[np.int64]) -> list[Image]:
        return list(self._stack(positions))
