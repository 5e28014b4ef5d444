"""Data sets by name, for the command line and configuration files."""

from __future__ import annotations

import os
from collections.abc import Callable
from os import PathLike

from densecal.shift.datasets.base import Dataset
from densecal.shift.datasets.cifar import CIFAR10, CIFAR10C, CIFAR100, CIFAR100C
from densecal.shift.datasets.files import ImageFolder
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
"""The readers by the names that `open_dataset` and the command line accept."""


def open_dataset(
    spec: str, root: str | PathLike[str] | None = None, split: str | None = None, **options: object
) -> Dataset:
    """Open a data set by its name.

    Parameters
    ----------
    spec : str
        "cifar10", "cifar100", "imagenet", "objectnet", "folder:PATH", or a published corrupted set with
        corruption and severity, such as "cifar10-c:fog/3".
    root : path, optional
        Folder of the data; by default the environment variable ``DENSECAL_DATA``, else the folder ``data``.
        Not used for "folder:PATH".
    split : str, optional
        One of the data set's splits; by default the reader's default.
    **options
        Passed to the reader: ``transform``, ``complete``, ``mean``, ``std``.

    Examples
    --------
    >>> from densecal.shift import open_dataset
    >>> open_dataset("cifar11")
    Traceback (most recent call last):
    ...
    ValueError: unknown data set 'cifar11'; choose one of cifar10, cifar100, imagenet, objectnet, folder:PATH, ...
    """
    name, _, argument = spec.partition(":")
    name = name.lower()
    if name not in DATASETS:
        raise ValueError(
            f"unknown data set {spec!r}; choose one of cifar10, cifar100, imagenet, objectnet, folder:PATH, or a "
            "published corrupted set such as cifar10-c:fog/3, cifar100-c:fog/3, imagenet-c:fog/3"
        )
    if split is not None:
        options["split"] = split
    if name == "folder":
        if not argument:
            raise ValueError("folder needs a path: folder:PATH")
        return DATASETS[name](argument, **options)
    where = os.environ.get("DENSECAL_DATA", "data") if root is None else root
    if not name.endswith("-c"):
        if argument:
            raise ValueError(f"{name} takes nothing after a colon, got {spec!r}; pass its folder as root=")
        return DATASETS[name](where, **options)
    corruption, _, severity = argument.partition("/")
    if not corruption or not severity.isdecimal():
        raise ValueError(f"{spec!r} needs a corruption and a severity, such as {name}:fog/3")
    return DATASETS[name](where, corruption, int(severity), **options)
