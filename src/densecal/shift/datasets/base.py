"""What every data set of densecal can do: give image i and its label, one at a time or as a batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

from densecal.shift.datasets.checks import Image, Labels, check_indices, stack_images

if TYPE_CHECKING:
    import torch

    from densecal.shift.datasets.torch_images import TorchImages

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


class Dataset(ABC):
    """A labelled set of uint8 RGB images, read one at a time or as a batch.

    ``dataset[i]`` is ``(image, label)`` with an image of shape (H, W, 3); a data set is iterable, and a torch
    ``DataLoader`` takes what :meth:`as_torch` returns.

    Attributes
    ----------
    name : str
        What the set is called in tables and messages.
    split : str
        Which of :attr:`splits` this is.
    splits : tuple of str
        The splits that the set has.
    classes : tuple of str
        Class names; label ``i`` means ``classes[i]``.
    labels : ndarray of int64, shape (N,)
        Every label, without reading an image.
    mean, std : tuple of three floats
        The published normalisation, for pixels scaled to [0, 1].

    Examples
    --------
    >>> import numpy as np
    >>> from densecal.shift.datasets import ImageArrays
    >>> dataset = ImageArrays(np.zeros((5, 8, 8, 3), np.uint8), [0, 1, 0, 1, 1], classes=("cat", "dog"))
    >>> len(dataset), dataset.n_classes, dataset.labels.tolist()
    (5, 2, [0, 1, 0, 1, 1])
    >>> image, label = dataset[1]
    >>> image.shape, dataset.classes[label]
    ((8, 8, 3), 'dog')
    """

    splits: tuple[str, ...] = ()
    mean: tuple[float, float, float] = IMAGENET_MEAN
    std: tuple[float, float, float] = IMAGENET_STD
    name: str
    split: str
    classes: tuple[str, ...]
    labels: Labels

    @abstractmethod
    def _read(self, position: int) -> Image:
        """Give the image at a position that is known to be in range."""

    def _read_many(self, positions: NDArray[np.int64]) -> list[Image]:
        return [self._read(int(position)) for position in positions]

    def _stack(self, positions: NDArray[np.int64]) -> Image:
        """Give the images at checked positions as one (B, H, W, 3) array."""
        return stack_images(self._read_many(positions), self.name)

    def _tensors(self, positions: NDArray[np.int64]) -> torch.Tensor:
        """Give the images as one uint8 tensor; wrappers that work on a device leave it there."""
        import torch

        return torch.from_numpy(self._stack(positions))

    @property
    def n_classes(self) -> int:
        """How many classes the labels count."""
        return len(self.classes)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: SupportsIndex) -> tuple[Image, int]:
        position = int(check_indices([index.__index__()], len(self), self.name)[0])
        return self._read(position), int(self.labels[position])

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[Image, int]]:
        """Give several samples at once: torch's ``DataLoader`` fetches a whole batch with this."""
        positions = check_indices(indices, len(self), self.name)
        return list(zip(self._read_many(positions), self.labels[positions].tolist(), strict=True))

    def batch(self, indices: ArrayLike) -> tuple[Image, Labels]:
        """Give several samples as arrays.

        Parameters
        ----------
        indices : array of int, shape (B,)
            Which samples, in which order; negative ones count from the end.

        Returns
        -------
        images : ndarray of uint8, shape (B, H, W, 3)
        labels : ndarray of int64, shape (B,)

        Examples
        --------
        >>> import numpy as np
        >>> from densecal.shift.datasets import ImageArrays
        >>> dataset = ImageArrays(np.zeros((5, 8, 8, 3), np.uint8), [0, 1, 0, 1, 1])
        >>> images, labels = dataset.batch([3, 0])
        >>> images.shape, labels.tolist()
        ((2, 8, 8, 3), [1, 0])
        """
        positions = check_indices(indices, len(self), self.name)
        return self._stack(positions), self.labels[positions]

    def subset(self, indices: ArrayLike) -> Subset:
        """Give the part of the data set at these indices, in this order.

        Examples
        --------
        >>> import numpy as np
        >>> from densecal.shift.datasets import ImageArrays
        >>> dataset = ImageArrays(np.zeros((5, 8, 8, 3), np.uint8), [0, 1, 2, 3, 4])
        >>> dataset.subset([4, 1]).labels.tolist()
        [4, 1]
        """
        return Subset(self, indices)

    def as_torch(
        self,
        *,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
        to_tensor: Callable[[Image], torch.Tensor] | None = None,
    ) -> TorchImages:
        """Give the data set as a ``torch.utils.data.Dataset`` of (normalised float tensor, label).

        Parameters
        ----------
        mean, std : three floats, optional
            Normalisation in place of the data set's own, for pixels scaled to [0, 1].
        to_tensor : callable, optional
            Turns one uint8 (H, W, 3) image into what the model takes, in place of scaling and normalising. It
            gets the image as the data set gives it: resized, cropped and corrupted already.

        Returns
        -------
        TorchImages
            Yields float32 tensors of shape (3, H, W), ready for ``torch.utils.data.DataLoader``.
        """
        from densecal.shift.datasets.torch_images import TorchImages

        return TorchImages(self, mean=mean, std=std, to_tensor=to_tensor)

    def __repr__(self) -> str:
        split = f", split={self.split!r}" if self.split else ""
        return f"{type(self).__name__}({self.name!r}{split}, {len(self):,} images, {self.n_classes} classes)"


class Wrapper(Dataset):
    """A data set made from another, with the labels, classes and normalisation of that one."""

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
    """A part of a data set: the samples at some indices, in their order.

    Parameters
    ----------
    dataset : Dataset
        What to take from.
    indices : array of int
        Positions in ``dataset``.

    Examples
    --------
    >>> import numpy as np
    >>> from densecal.shift.datasets import ImageArrays
    >>> whole = ImageArrays(np.zeros((4, 8, 8, 3), np.uint8), [0, 1, 2, 3])
    >>> len(Subset(whole, [0, 2]))
    2
    """

    def __init__(self, dataset: Dataset, indices: ArrayLike) -> None:
        super().__init__(dataset)
        self.indices = check_indices(indices, len(dataset), dataset.name)
        self.labels = dataset.labels[self.indices]

    def _read(self, position: int) -> Image:
        return self.dataset._read(int(self.indices[position]))

    def _read_many(self, positions: NDArray[np.int64]) -> list[Image]:
        return self.dataset._read_many(self.indices[positions])

    def _stack(self, positions: NDArray[np.int64]) -> Image:
        return self.dataset._stack(self.indices[positions])

    def _tensors(self, positions: NDArray[np.int64]) -> torch.Tensor:
        return self.dataset._tensors(self.indices[positions])
