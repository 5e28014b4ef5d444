"""Data sets by name, for the command line and for configuration files."""

from __future__ import annotations

import os
from collections.abc import Callable
from os import PathLike
from typing import Any

from densecal.shift.datasets.base import Dataset
from densecal.shift.datasets.cifar import CIFAR10, CIFAR10C, CIFAR100, CIFAR100C
from densecal.shift.datasets.folder import ImageFolder
from densecal.shift.datasets.imagenet import ImageNet, ImageNetC
from densecal.shift.datasets.objectnet import ObjectNet

DATASETS: dict[str, Callable[..., Dataset]] = {
    "cifar10": CIFAR10,
    "cifar100": CIFAR100,
    "cifar10-c": CIFAR10C,
    "cifar100-c": CIFAR100C,
    "imagenet": ImageNet,
    "imagenet-c": ImageNetC,
    "objectnet": ObjectNet,
    "folder": ImageFolder,
}
"""The readers by the names that `open_dataset` and the command line take."""

_GRAMMAR = (
    "cifar10, cifar100, imagenet, objectnet, folder:PATH, or a published corrupted set: "
    "cifar10-c:fog/3, cifar100-c:fog/3, imagenet-c:fog/3"
)


def open_dataset(
    spec: str, root: str | PathLike[str] | None = None, split: str | None = None, **options: Any
) -> Dataset:
    """Open a data set by its name.

    Parameters
    ----------
    spec : str
        "cifar10", "cifar100", "imagenet", "objectnet", "folder:PATH", or a published corrupted set with
        corruption and severity, like "cifar10-c:fog/3".
    root : path, optional
        Where the data lie. Without it the environment variable ``DENSECAL_DATA``, else the folder ``data``.
        Not for "folder:PATH", whose path says it.
    split : str, optional
        One of the data set's splits; its own default without it.
    **options
        Passed to the reader: ``transform``, ``complete``, ``mean``, ``std``.

    Returns
    -------
    Dataset

    Examples
    --------
    >>> open_dataset("cifar11")
    Traceback (most recent call last):
    ...
    ValueError: unknown data set 'cifar11'; known are cifar10, cifar100, imagenet, objectnet, folder:PATH, ...
    """
    name, _, argument = spec.partition(":")
    name = name.lower()
    if name not in DATASETS:
        raise ValueError(f"unknown data set {spec!r}; known are {_GRAMMAR}")
    if split is not None:
        options["split"] = split
    if name == "folder":
        if not argument:
            raise ValueError("folder needs its path: folder:PATH")
        return ImageFolder(argument, **options)
    where = os.environ.get("DENSECAL_DATA", "data") if root is None else root
    if not name.endswith("-c"):
        if argument:
            raise ValueError(f"{name} takes nothing after a colon, got {spec!r}; where it lies is root=")
        return DATASETS[name](where, **options)
    corruption, _, severity = argument.partition("/")
    if not corruption or not severity.isdecimal():
        raise ValueError(f"{spec!r} needs a corruption and a severity, like {name}:fog/3")
    return DATASETS[name](where, corruption, int(severity), **options)
