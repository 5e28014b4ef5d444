"""Errors, checks, class names and seeded splits for the readers of data sets."""

from __future__ import annotations

import importlib.resources
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from densecal.shift.corruptions.constants import SEVERITIES

Image = NDArray[np.uint8]
Labels = NDArray[np.int64]


class DatasetError(ValueError):
    """The files of a data set differ from the published ones: truncated, renamed or from another data set."""


class MissingDatasetError(DatasetError, FileNotFoundError):
    """The files of a data set are not found; the message states what to download and where to unpack it."""


def check_indices(indices: ArrayLike, length: int, name: str) -> NDArray[np.int64]:
    """Return the indices as nonnegative int64, or raise an error that names the first one out of range."""
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
    """Return `count` labels from 0 to `n_classes` - 1 as int64."""
    given = np.asarray(labels)
    if given.shape != (count,) or (count and not np.issubdtype(given.dtype, np.integer)):
        raise DatasetError(
            f"{where}: expected {count} integer labels, one per image, got {given.dtype} of shape {given.shape}"
        )
    result = given.astype(np.int64)
    if count and (result.min() < 0 or (n_classes is not None and result.max() >= n_classes)):
        upper = "" if n_classes is None else f" to {n_classes - 1}"
        raise DatasetError(f"{where}: labels must be from 0{upper}, found {result.min()} to {result.max()}")
    return result


def three_floats(values: Sequence[float], argument: str) -> tuple[float, float, float]:
    """Return one float per channel."""
    numbers = [float(value) for value in values]
    if len(numbers) != 3:
        raise ValueError(f"{argument} must be three numbers, one per channel, got {len(numbers)}")
    return numbers[0], numbers[1], numbers[2]


def check_choice(value: object, choices: Sequence[object], argument: str, name: str) -> None:
    """Raise an error that lists the choices, unless the value is one of them."""
    if value not in choices:
        raise ValueError(f"{argument} of {name} must be one of {', '.join(map(str, choices))}; got {value!r}")


def check_severity(severity: int, name: str) -> None:
    """Raise an error unless the severity is one of the published ones."""
    if severity not in SEVERITIES:
        raise ValueError(f"severity of {name} must be 1 to 5, got {severity!r}; severity 0 is the clean set")


def find_first(candidates: Sequence[Path], what: str, how_to_get: str) -> Path:
    """Return the first path that exists, or raise an error that lists them all and how to get the data set."""
    for path in candidates:
        if path.exists():
            return path
    tried = " or ".join(str(path) for path in candidates)
    raise MissingDatasetError(f"{what} not found: looked for {tried}. {how_to_get}")


@contextmanager
def published_file(path: Path, archive: str) -> Iterator[None]:
    """Name the file and the archive it is from in every error while it is read: a damaged file can raise anything."""
    if not path.exists():
        raise MissingDatasetError(f"{path} not found. It is part of {archive}: download and unpack it")
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        raise DatasetError(
            f"{path} is damaged or not the published file ({type(error).__name__}: {error}). It is part of {archive}: "
            "unpack it again"
        ) from error


def check_count(where: Path, found: int, expected: int, what: str, *, complete: bool) -> None:
    """Raise an error unless all images or classes are present, or any if they need not be complete."""
    if complete and found != expected:
        raise DatasetError(
            f"{where} has {found:,} of the {expected:,} {what}; unpack the archive again, "
            f"or pass complete=False to use those that are present"
        )
    if not found:
        raise MissingDatasetError(f"{where} has no {what}")


def read_class_names(file: str) -> tuple[str, ...]:
    """Return the class names in a file of this package, one per line."""
    return tuple((importlib.resources.files(__package__) / file).read_text(encoding="utf-8").split())


def seeded_split(total: int, size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return a random split of the positions 0 to `total` - 1 into `size` and the rest, each in ascending order.

    NumPy's legacy generator is used because its stream is frozen: the split is the same in every release. Ascending
    order keeps reads from disk sequential.
    """
    order = np.random.RandomState(0).permutation(total).astype(np.int64)
    return np.sort(order[:size]), np.sort(order[size:])
