"""Any tree of images with one folder a class."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from pathlib import Path

import numpy as np

from densecal.shift.datasets.checks import DatasetError, MissingDatasetError, check_choice, three_floats
from densecal.shift.datasets.files import IMAGE_SUFFIXES, ImageFiles, Transform, list_folders, list_images

_USUAL_SPLITS = ("train", "val", "valid", "validation", "test")


class ImageFolder(ImageFiles):
    """Images in folders named after their classes: ``root/dog/1.png``, ``root/cat/2.jpg``.

    Classes are numbered in the order of their sorted names, as torchvision's ``ImageFolder`` numbers them.
    Images in folders below a class's folder belong to the class too.

    Parameters
    ----------
    root : path
        The folder with the class folders, or with one folder a split that has them
        (``root/train/dog/1.png``).
    split : str, optional
        Which split's folder to read; needed if ``root`` has only folders like "train", "val" and "test".
    transform : callable, optional
        Gets each image as an RGB ``PIL.Image``, and gives the image to yield. Without it images are as they
        are; ``ResizeCrop(256, 224)`` brings photographs to the size that ImageNet classifiers take.
    mean, std : three floats, optional
        Normalisation; ImageNet's without it.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from PIL import Image
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
        if not folder.is_dir():
            raise MissingDatasetError(
                f"{folder} is not a folder. Images must lie in one folder a class: {folder / 'CLASS' / 'image.png'}"
            )
        self.splits = _split_folders(folder)
        if split is not None:
            if not self.splits:
                raise ValueError(f"split={split!r}: {folder} has class folders but no folder for each split")
            folder /= check_choice(split, self.splits, "split", str(folder))
        elif self.splits:
            raise ValueError(f"{folder} has one folder a split: say which, split= one of {', '.join(self.splits)}")
        classes = list_folders(folder)
        images = [_images_below(folder / name) for name in classes]
        _check_tree(folder, classes, images)
        super().__init__(
            [path for of_class in images for path in of_class],
            np.repeat(np.arange(len(classes), dtype=np.int64), [len(of_class) for of_class in images]),
            classes,
            name=Path(root).resolve().name,
            split=split or "",
            transform=transform,
        )
        if mean is not None:
            self.mean = three_floats(mean, "mean")
        if std is not None:
            self.std = three_floats(std, "std")


def _split_folders(root: Path) -> tuple[str, ...]:
    """Give the split folders of a tree: there are some, and nothing else lies beside them."""
    names = list_folders(root)
    return tuple(name for name in _USUAL_SPLITS if name in names) if set(names) <= set(_USUAL_SPLITS) else ()


def _images_below(folder: Path) -> list[str]:
    paths = list_images(folder)
    for name in list_folders(folder):
        paths += _images_below(folder / name)
    return paths


def _check_tree(folder: Path, classes: list[str], images: list[list[str]]) -> None:
    if not classes:
        raise DatasetError(
            f"{folder} has no class folders. Images must lie in one folder a class: {folder / 'CLASS' / 'image.png'}"
        )
    empty = [name for name, of_class in zip(classes, images, strict=True) if not of_class]
    if empty:
        raise DatasetError(
            f"{folder}: no images in {', '.join(empty[:5])}{', ...' if len(empty) > 5 else ''}; "
            f"every class folder needs one of {', '.join(IMAGE_SUFFIXES)}"
        )
