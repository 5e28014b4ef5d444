"""Reader of CIFAR as PNG files, one folder per class: ``train/apple/*.png``, ``test/apple/*.png``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from densecal.shift.datasets.checks import DatasetError, Image, Labels
from densecal.shift.datasets.files import ImageFiles, join_classes, list_folders, list_images


def read_class_folders(folder: Path, classes: Sequence[str], rows: int) -> tuple[Image, Labels]:
    """Return the images (rows, 32, 32, 3) and labels of a split, in a fixed random order.

    The file names do not tell the official order. Sorted by class, the first images would all be of one class.
    """
    found = list_folders(folder)
    if found != sorted(classes):
        wrong = sorted(set(found) ^ set(classes))
        raise DatasetError(
            f"{folder}: expected {len(classes)} folders named after the classes ({classes[0]}, {classes[1]}, ...), "
            f"missing or unknown: {', '.join(wrong[:3])}. Use ImageFolder for other image trees."
        )
    paths, labels = join_classes([list_images(folder / name) for name in classes], range(len(classes)))
    if len(paths) != rows:
        raise DatasetError(f"{folder} has {len(paths):,} of the {rows:,} images; copy the folder again")
    order = np.random.RandomState(1).permutation(rows)
    files = ImageFiles(paths, labels, classes, name=str(folder), split="", transform=None)
    images, labels = files.batch(order)
    if images.shape[1:] != (32, 32, 3):
        raise DatasetError(f"{folder}: expected images of 32x32, got {images.shape[2]}x{images.shape[1]}")
    return images, labels
