"""What can be wrong with a data set, and the checks that say so."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

Image = NDArray[np.uint8]
Labels = NDArray[np.int64]


class DatasetError(ValueError):
    """A data set's files are there but not as published: truncated, renamed or of another set.

    Examples
    --------
    >>> issubclass(DatasetError, ValueError)
    True
    """


class MissingDatasetError(DatasetError, FileNotFoundError):
    """A data set is not where it must lie; the message says what to get and where to put it.

    Examples
    --------
    >>> issubclass(MissingDatasetError, FileNotFoundError)
    True
    """


def check_indices(indices: ArrayLike, length: int, name: str) -> NDArray[np.int64]:
    """Give the indices as positions from 0, or say which one is out of range."""
    given = np.asarray(indices)
    if given.size == 0:
        return np.empty(0, np.int64)
    if given.ndim != 1 or not np.issubdtype(given.dtype, np.integer):
        raise TypeError(
            f"indices must be a one-dimensional sequence of integers, got {given.dtype} of shape {given.shape}"
        )
    positions = np.where(given < 0, given + length, given).astype(np.int64)
    wrong = (positions < 0) | (positions >= length)
    if wrong.any():
        raise IndexError(f"index {given[wrong][0]} is out of range: {name} has {length} images")
    return positions


def check_class_labels(labels: ArrayLike, count: int, n_classes: int | None, where: str) -> Labels:
    """Give the labels as int64, or say how they do not fit the images and classes."""
    given = np.asarray(labels)
    if given.shape != (count,) or (count and not np.issubdtype(given.dtype, np.integer)):
        raise DatasetError(
            f"{where}: expected {count} integer labels, one an image, got {given.dtype} of shape {given.shape}"
        )
    result = given.astype(np.int64)
    if count and (result.min() < 0 or (n_classes is not None and result.max() >= n_classes)):
        upper = "" if n_classes is None else f" to {n_classes - 1}"
        raise DatasetError(f"{where}: labels must run from 0{upper}, found {result.min()} to {result.max()}")
    return result


def three_floats(values: Sequence[float], argument: str) -> tuple[float, float, float]:
    """Give one float a channel, or name the argument that is not that."""
    numbers = [float(value) for value in values]
    if len(numbers) != 3:
        raise ValueError(f"{argument} must be three numbers, one a channel, got {len(numbers)}")
    return numbers[0], numbers[1], numbers[2]


def check_choice(value: str, choices: Iterable[str], argument: str, name: str) -> str:
    """Give the value back if it is one of the choices, else list them."""
    allowed = tuple(choices)
    if value not in allowed:
        raise ValueError(f"{argument} of {name} must be one of {', '.join(allowed)}; got {value!r}")
    return value


def check_severity(severity: int, name: str) -> int:
    """Give a severity of the published files, 1 to 5."""
    if severity not in range(1, 6):
        raise ValueError(f"severity of {name} must be 1 to 5, got {severity!r}; the clean set is severity 0")
    return int(severity)


def first_existing(candidates: Sequence[Path], what: str, how_to_get: str) -> Path:
    """Give the first path that is there, or say where the data set was looked for and how to get it."""
    for path in candidates:
        if path.exists():
            return path
    tried = " or ".join(str(path) for path in candidates)
    raise MissingDatasetError(f"{what} is not there: looked for {tried}. {how_to_get}")


def stack_images(images: Sequence[Image], name: str) -> Image:
    """Give the images as one (B, H, W, 3) array, or say that they differ in size."""
    shapes = {image.shape for image in images}
    if len(shapes) > 1:
        few = ", ".join(f"{height}x{width}" for height, width, _ in sorted(shapes)[:3])
        raise DatasetError(
            f"{name}: images of different sizes ({few}, ...) make no batch; "
            "open the data set with transform=ResizeCrop(256, 224), or another transform to one size"
        )
    return np.stack(images) if images else np.empty((0, 0, 0, 3), np.uint8)
