"""Data sets of image files: reading, resizing and cropping of images, and trees with one folder per class."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from densecal.shift.datasets.base import Dataset
from densecal.shift.datasets.checks import DatasetError, Image, Labels, MissingDatasetError, check_choice

if TYPE_CHECKING:
    from PIL.Image import Image as PILImage

Transform = Callable[["PILImage"], "PILImage | Image"]

_SUFFIXES = (".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
_USUAL_SPLITS = ("train", "val", "valid", "validation", "test")


@dataclass(frozen=True)
class ResizeCrop:
    """The usual evaluation transform: crop a border, resize the short side, crop the centre.

    With (256, 224) this is, pixel for pixel, the transform of torchvision's ImageNet classifiers and of ImageNet-C.

    Parameters
    ----------
    resize : int or None
        Length of the short side after resizing; None keeps the size.
    crop : int or None
        Side of the square cut from the centre; None does not crop.
    interpolation : {"bilinear", "bicubic", "nearest", "lanczos"}
        Interpolation of the resize.
    border : int
        Number of pixels to crop from each side first.
    """

    resize: int | None = 256
    crop: int | None = 224
    interpolation: str = "bilinear"
    border: int = 0

    def __post_init__(self) -> None:
        check_choice(self.interpolation, ("bilinear", "bicubic", "nearest", "lanczos"), "interpolation", "ResizeCrop")

    def __call__(self, image: PILImage) -> PILImage:
        """Return the resized and cropped image."""
        from PIL.Image import Resampling

        if self.border:
            width, height = image.size
            image = image.crop((self.border, self.border, width - self.border, height - self.border))
        if self.resize is not None:
            short = min(image.size)
            # The long side is rounded down, as in torchvision.
            width, height = (int(self.resize * side / short) for side in image.size)
            if (width, height) != image.size:
                image = image.resize((width, height), Resampling[self.interpolation.upper()])
        if self.crop is None:
            return image
        width, height = image.size
        if min(width, height) < self.crop:
            raise ValueError(f"an image of {width}x{height} is too small to crop {self.crop}x{self.crop} from it")
        left, top = round((width - self.crop) / 2), round((height - self.crop) / 2)
        return image.crop((left, top, left + self.crop, top + self.crop))


class ImageFiles(Dataset):
    """A data set of image files with one label each: the base of the folder readers."""

    def __init__(
        self,
        paths: list[str],
        labels: Labels,
        classes: Sequence[str],
        *,
        name: str,
        split: str,
        transform: Transform | None,
    ) -> None:
        self.paths, self.labels, self.classes = paths, labels, tuple(classes)
        self.name, self.split, self.transform = name, split, transform

    def _read(self, positions: NDArray[np.int64]) -> list[Image]:
        return [self._read_file(self.paths[position]) for position in positions]

    def _read_file(self, path: str) -> Image:
        import PIL.Image

        try:
            with PIL.Image.open(path) as opened:
                image = opened.convert("RGB")
        except FileNotFoundError:
            raise DatasetError(f"{path} was removed after the data set was opened") from None
        except MemoryError:
            raise
        except Exception as error:  # a damaged image can raise anything
            raise DatasetError(f"{path} cannot be read as an image ({error}); replace the damaged file") from error
        try:
            # Copy, because Pillow's buffer is read-only.
            pixels = np.array(image if self.transform is None else self.transform(image))
        except ValueError as error:
            raise DatasetError(f"{path}: {error}") from error
        if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[-1] != 3:
            raise DatasetError(
                f"{path}: the transform must return a PIL image or a uint8 array of shape (H, W, 3), "
                f"got {pixels.dtype} of shape {pixels.shape}; normalise with as_torch instead"
            )
        return pixels


class ImageFolder(ImageFiles):
    """Images in folders named after their classes: ``root/dog/1.png``, ``root/cat/2.jpg``.

    Labels follow the sorted class names, as in torchvision's ``ImageFolder``. Subfolders of a class folder belong to
    the class.

    Parameters
    ----------
    root : path
        The folder with the class folders, or with one folder per split that contains them (``root/train/dog/1.png``).
    split : str, optional
        The split to read; required if ``root`` has only folders such as "train", "val" and "test".
    transform : callable, optional
        Maps each RGB ``PIL.Image`` to the image to return. ``ResizeCrop(256, 224)`` resizes photographs for ImageNet
        classifiers; by default images are not resized.
    mean, std : three floats, optional
        The attributes of :class:`Dataset`.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from PIL import Image
    >>> from densecal.shift import ImageFolder
    >>> with tempfile.TemporaryDirectory() as root:
    ...     for name in ("cat", "dog"):
    ...         Path(root, name).mkdir()
    ...         Image.new("RGB", (8, 8)).save(Path(root, name, "1.png"))
    ...     dataset = ImageFolder(root)
    ...     dataset.classes, dataset.labels.tolist(), dataset[0][0].shape
    (('cat', 'dog'), [0, 1], (8, 8, 3))
    """

    def __init__(
        self,
        root: str | PathLike[str],
        split: str | None = None,
        *,
        transform: Transform | None = None,
        mean: Sequence[float] | None = None,
        std: Sequence[float] | None = None,
    ) -> None:
        folder = Path(root)
        expected = f"Expected one folder per class: {folder / 'CLASS' / 'image.png'}"
        if not folder.is_dir():
            raise MissingDatasetError(f"{folder} is not a folder. {expected}")
        names = list_folders(folder)
        if set(names) <= set(_USUAL_SPLITS):
            self.splits = tuple(name for name in _USUAL_SPLITS if name in names)
        if self.splits:
            if split is None:
                raise ValueError(f"{folder} has one folder per split; pass split= one of {', '.join(self.splits)}")
            check_choice(split, self.splits, "split", str(folder))
            folder /= split
        elif split is not None:
            raise ValueError(f"split={split!r}: {folder} has class folders instead of one folder per split")
        classes = list_folders(folder)
        if not classes:
            raise DatasetError(f"{folder} has no class folders. {expected}")
        images = [_list_images_below(folder / name) for name in classes]
        empty = [name for name, paths in zip(classes, images, strict=True) if not paths]
        if empty:
            raise DatasetError(
                f"{folder}: no images in {', '.join(empty[:5])}{', ...' if len(empty) > 5 else ''}; "
                f"every class folder needs at least one of {', '.join(_SUFFIXES)}"
            )
        paths, labels = join_classes(images, range(len(classes)))
        super().__init__(paths, labels, classes, name=Path(root).resolve().name, split=split or "", transform=transform)
        self._set_normalisation(mean, std)


def list_folders(folder: Path) -> list[str]:
    """Return the sorted names of the folders in a folder, without hidden ones."""
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))


def list_images(folder: Path) -> list[str]:
    """Return the sorted paths of the image files in a folder, without hidden ones."""
    with os.scandir(folder) as entries:
        return sorted(
            entry.path for entry in entries if entry.name.lower().endswith(_SUFFIXES) and not entry.name.startswith(".")
        )


def join_classes(images: Sequence[Sequence[str]], labels: ArrayLike) -> tuple[list[str], Labels]:
    """Return the paths of all classes in one list, and the label of each."""
    counts = [len(paths) for paths in images]
    return [path for paths in images for path in paths], np.repeat(np.asarray(labels, np.int64), counts)


def _list_images_below(folder: Path) -> list[str]:
    paths = list_images(folder)
    for name in list_folders(folder):
        paths += _list_images_below(folder / name)
    return paths
