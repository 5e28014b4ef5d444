"""Functions shared by the readers of published data sets: paths, class names, severities and seeded splits."""

from __future__ import annotations

import importlib.resources
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from densecal.shift.corruptions.constants import SEVERITIES
from densecal.shift.datasets.checks import MissingDatasetError


def find_first(candidates: Sequence[Path], what: str, how_to_get: str) -> Path:
    """Return the first path that exists, or raise an error that lists them all and how to get the data set."""
    for path in candidates:
        if path.exists():
            return path
    tried = " or ".join(str(path) for path in candidates)
    raise MissingDatasetError(f"{what} not found: looked for {tried}. {how_to_get}")


def read_class_names(file: str) -> tuple[str, ...]:
    """Return the class names in a file of this package, one per line."""
    return tuple((importlib.resources.files(__package__) / file).read_text(encoding="utf-8").split())


def check_severity(severity: int, name: str) -> None:
    """Raise an error unless the severity is one of the published ones."""
    if severity not in SEVERITIES:
        raise ValueError(f"severity of {name} must be 1 to 5, got {severity!r}; severity 0 is the clean set")


def seeded_split(total: int, size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return a random split of the positions 0 to `total` - 1 into `size` and the rest, each in ascending order.

    NumPy's legacy generator is used because its stream is frozen: the split is the same in every release. Ascending
    order keeps reads from disk sequential.
    """
    order = np.random.RandomState(0).permutation(total).astype(np.int64)
    return np.sort(order[:size]), np.sort(order[size:])
