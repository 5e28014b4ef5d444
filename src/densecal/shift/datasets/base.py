"""The base class of all data sets, subsets, and images held in one array."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

from densecal.shift.datasets.checks import (
    DatasetError,
    Image,
    Labels,
    check_class_labels,
    check_indices,
    three_floats,
)

if TYPE_CHECKING:
    import torch

    from densecal.shift.datasets.torch_images import TorchImages


class Dataset(ABC):
    """A labelled set of uint8 RGB images, read one at a time or in batches.

    ``dataset[i]`` is ``(image, label)`` with an image of shape (H, W, 3). Data sets are iterable; for a torch
    ``DataLoader`` use :meth:`as_torch`.

    Attributes
    ----------
    name : str
        Name of the set in tables and messages.
    split : str
        The split read, one of :attr:`splits`.
    splits : tuple of str
        The splits of the set.
    classes : tuple of str
        Class names; label ``i`` means ``classes[i]``.
    labels : ndarray of int64, shape (N,)
        All labels, available without reading an image.
    mean, std : tuple of three floats
        The published normalisation of pixels scaled to [0, 1]; ImageNet's by default.

    Examples
    --------
    >>> from densecal.shift import ImageArrays
    >>> dataset = ImageArrays(np.zeros((5, 8, 8, 3), np.uint8), [0, 1, 0, 1, 1], classes=("cat", "dog"))
    >>> image, label = dataset[1]
    >>> image.shape, dataset.classes[label]
    ((8, 8, 3), 'dog')
    >>> images, labels = dataset.batch([3, 0])
    >>> images.shape, labels.tolist()
    ((2, 8, 8, 3), [1, 0])
    """

    splits: tuple[str, ...] = ()
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)
    name: str
    split: str
    classes: tuple[str, ...]
    labels: Labels

    @abstractmethod
    def _read(self, positions: NDArray[np.int64]) -> list[Image] | Image:
        """Return the images at checked positions: one array, or a list of images that may differ in size."""

    def _stack(self, positions: NDArray[np.int64]) -> Image:
        images = self._read(positions)
        if isinstance(images, np.ndarray):
            return images
        shapes = {image.shape for image in images}
        if len(shapes) > 1:
            few = ", ".join(f"{height}x{width}" for height, width, _ in sorted(shapes)[:3])
            raise DatasetError(
                f"{self.name}: cannot batch images of different sizes ({few}, ...); "
                "open the data set with transform=ResizeCrop(256, 224) or another transform to a fixed size"
            )
        return np.stack(images) if images else np.empty((0, 0, 0, 3), np.uint8)

    def _tensors(self, positions: NDArray[np.int64]) -> torch.Tensor:
        """Return the images as one tensor, on the device on which they were changed."""
        import torch

        return torch.from_numpy(self._stack(positions))

    def _set_normalisation(self, mean: Sequence[float] | None, std: Sequence[float] | None) -> None:
        if mean is not None:
            self.mean = three_floats(mean, "mean")
        if std is not None:
            self.std = three_floats(std, "std")

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.classes)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: SupportsIndex) -> tuple[Image, int]:
        return self.__getitems__([index.__index__()])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[Image, int]]:
        """Return several samples; torch's ``DataLoader`` calls this to fetch a whole batch."""
        positions = check_indices(indices, len(self), self.name)
        return list(zip(self._read(positions), self.labels[positions].tolist(), strict=True))

    def batch(self, indices: ArrayLike) -> tuple[Image, Labels]:
        """Return images (B, H, W, 3) and labels (B,) at (B,) indices; negative indices count from the end."""
        positions = check_indices(indices, len(self), self.name)
        return self._stack(positions), self.labels[positions]

    def subset(self, indices: ArrayLike) -> Subset:
        """Return the samples at these indices, in this order, as a data set."""
        return Subset(self, indices)

    def as_torch(
        self,
        *,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        to_tensor: Callable[[Image], torch.Tensor] | None = None,
    ) -> TorchImages:
        """Return a ``torch.utils.data.Dataset`` of (normalised float32 tensor (3, H, W), label).

        Parameters
        ----------
        mean, std : three floats, optional
            Normalisation of pixels scaled to [0, 1]; by default the data set's own.
        to_tensor : callable, optional
            Converts one uint8 (H, W, 3) image, already resized, cropped and corrupted, to the model's input. Replaces
            scaling and normalisation.
        """
        from densecal.shift.datasets.torch_images import TorchImages

        return TorchImages(self, mean=mean, std=std, to_tensor=to_tensor)

    def __repr__(self) -> str:
        split = f", split={self.split!r}" if self.split else ""
        return f"{type(self).__name__}({self.name!r}{split}, {len(self):,} images, {self.n_classes} classes)"


class Wrapper(Dataset):
    """A data set made from another one, with its labels, classes and normalisation."""

    def __init__(self, dataset: Dataset) -> None:
        if not isinstance(dataset, Dataset):
            raise TypeError(
                f"dataset must be a densecal.shift Dataset, got {type(dataset).__name__}; "
                "wrap arrays with ImageArrays(images, labels), a folder of images with ImageFolder(path)"
            )
        self.dataset = dataset
        self.name, self.split, self.splits = dataset.name, dataset.split, dataset.splits
        self.classes, self.labels = dataset.classes, dataset.labels
        self.mean, self.std = dataset.mean, dataset.std


class Subset(Wrapper):
    """The samples of a data set at the given indices, in that order.

    Examples
    --------
    >>> from densecal.shift import ImageArrays, Subset
    >>> whole = ImageArrays(np.zeros((4, 8, 8, 3), np.uint8), [0, 1, 2, 3])
    >>> Subset(whole, [3, 1]).labels.tolist()
    [3, 1]
    """

    def __init__(self, dataset: Dataset, indices: ArrayLike) -> None:
        super().__init__(dataset)
        self.indices = check_indices(indices, len(dataset), dataset.name)
        self.labels = dataset.labels[self.indices]

    def _read(self, positions: NDArray[np.int64]) -> list[Image] | Image:
        return self.dataset._read(self.indices[positions])

    def _tensors(self, positions: NDArray[np.int64]) -> torch.Tensor:
        return self.dataset._tensors(self.indices[positions])


class ImageArrays(Dataset):
    """A data set of images in one array.

    Parameters
    ----------
    images : array of uint8, shape (N, H, W, 3)
        The images; a memory-mapped array stays on disk.
    labels : array of int, shape (N,)
        The labels, from 0.
    classes : sequence of str, optional
        Class names; by default "0", "1", ... up to the largest label.
    name, split, mean, std : optional
        The attributes of :class:`Dataset`.

    Examples
    --------
    >>> from densecal.shift import ImageArrays
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
        if classes is None:
            classes = [str(label) for label in range(int(self.labels.max(initial=-1)) + 1)]
        self.name, self.split, self.classes = name, split, tuple(classes)
        self._set_normalisation(mean, std)

    def _read(self, positions: NDArray[np.int64]) -> Image:
        # Indexing with an array copies, so writing to a sample does not change the data set.
        return np.asarray(self.images[positions])
