"""Data sets whose images are files: how one is read, resized and cropped."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from densecal.shift.datasets.base import Dataset
from densecal.shift.datasets.checks import DatasetError, Image, Labels, check_choice

if TYPE_CHECKING:
    from PIL.Image import Image as PILImage

Transform = Callable[["PILImage"], Any]

IMAGE_SUFFIXES = (".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")


@dataclass(frozen=True)
class ResizeCrop:
    """The usual evaluation transform: crop a border, resize the short side, crop the centre.

    With (256, 224) this is the transform that the ImageNet classifiers of torchvision are published with,
    pixel for pixel; ImageNet-C was made from images cut like this.

    Parameters
    ----------
    resize : int or None
        Length of the short side after resizing; None leaves the image at its size.
    crop : int or None
        Side of the square cut from the centre; None cuts nothing.
    interpolation : {"bilinear", "bicubic", "nearest", "lanczos"}
        How to resize.
    border : int
        Pixels to cut from each side first.

    Examples
    --------
    >>> from PIL import Image
    >>> ResizeCrop(256, 224)(Image.new("RGB", (640, 480))).size
    (224, 224)
    """

    resize: int | None = 256
    crop: int | None = 224
    interpolation: str = "bilinear"
    border: int = 0

    def __post_init__(self) -> None:
        check_choice(self.interpolation, ("bilinear", "bicubic", "nearest", "lanczos"), "interpolation", "ResizeCrop")

    def __call__(self, image: PILImage) -> PILImage:
        """Give the cut image."""
        from PIL.Image import Resampling

        if self.border:
            width, height = image.size
            image = image.crop((self.border, self.border, width - self.border, height - self.border))
        if self.resize is not None:
            short = min(image.size)
            # The long side is rounded down, as torchvision does.
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
    """A data set of image files with a label each: the base of the folder readers.

    Parameters
    ----------
    paths : sequence of path
        The image files.
    labels : ndarray of int64, shape (N,)
        The labels.
    classes : sequence of str
        Class names.
    name, split : str
        What to call the set in tables and messages.
    transform : callable or None
        Gets each image as an RGB ``PIL.Image`` and gives the image that the data set yields.
    """

    def __init__(
        self,
        paths: Sequence[str | PathLike[str]],
        labels: Labels,
        classes: Sequence[str],
        *,
        name: str,
        split: str,
        transform: Transform | None,
    ) -> None:
        self.paths = [os.fspath(path) for path in paths]
        self.labels = labels
        self.classes = tuple(classes)
        self.name, self.split, self.transform = name, split, transform

    def _read(self, position: int) -> Image:
        return read_image(self.paths[position], self.transform)


def read_image(path: str | PathLike[str], transform: Transform | None = None) -> Image:
    """Read an image file as RGB and apply a transform to it.

    Parameters
    ----------
    path : path
        Any image that Pillow reads; grey, palette and CMYK images are turned into RGB.
    transform : callable, optional
        From ``PIL.Image`` to ``PIL.Image`` or uint8 array.

    Returns
    -------
    ndarray of uint8, shape (H, W, 3)

    Examples
    --------
    >>> import tempfile
    >>> from PIL import Image
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Image.new("L", (4, 3)).save(f"{folder}/grey.png")
    ...     read_image(f"{folder}/grey.png").shape
    (3, 4, 3)
    """
    import PIL.Image

    try:
        with PIL.Image.open(path) as opened:
            image = opened.convert("RGB")
    except FileNotFoundError:
        raise DatasetError(f"{path} is gone: it was there when the data set was opened") from None
    except (OSError, SyntaxError, ValueError, PIL.Image.DecompressionBombError) as error:
        raise DatasetError(f"{path} cannot be read as an image ({error}); it is damaged: get it again") from error
    result = image
    if transform is not None:
        try:
            result = transform(image)
        except ValueError as error:
            raise DatasetError(f"{path}: {error}") from error
    pixels = np.array(result)  # a copy: Pillow's own buffer is read-only
    if pixels.dtype != np.uint8 or pixels.ndim != 3 or pixels.shape[-1] != 3:
        raise DatasetError(
            f"{path}: the transform must give a PIL image or a uint8 array of shape (H, W, 3), "
            f"got {pixels.dtype} of shape {pixels.shape}; normalisation belongs to as_torch"
        )
    return pixels


def list_folders(folder: Path) -> list[str]:
    """Give the names of the folders in a folder, sorted, hidden ones left out."""
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries if entry.is_dir() and not entry.name.startswith("."))


def list_images(folder: Path) -> list[str]:
    """Give the paths of the image files in a folder, sorted, hidden ones left out."""
    with os.scandir(folder) as entries:
        return sorted(
            entry.path
            for entry in entries
            if entry.name.lower().endswith(IMAGE_SUFFIXES) and not entry.name.startswith(".")
        )
