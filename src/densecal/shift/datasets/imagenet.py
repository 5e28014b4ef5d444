"""ImageNet (ILSVRC 2012) in its two usual layouts, and the published ImageNet-C."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from densecal.shift.datasets.checks import (
    DatasetError,
    Labels,
    MissingDatasetError,
    check_choice,
    check_severity,
    first_existing,
)
from densecal.shift.datasets.files import ImageFiles, ResizeCrop, Transform, list_folders, list_images
from densecal.shift.datasets.imagenet_devkit import devkit_labels
from densecal.shift.datasets.named_classes import named_classes
from densecal.shift.datasets.splits import seeded_part, seeded_rest

TRAIN_SIZE, VALIDATION_SIZE = 1_281_167, 50_000
EVALUATION_TRANSFORM = ResizeCrop(256, 224)

IMAGENET_WNIDS = named_classes("imagenet_wnids.txt")

_FAMILIES = ("", "noise", "blur", "weather", "digital", "extra")
_VALIDATION_NAME = re.compile(r"[/\\]ILSVRC2012_val_(\d{8})\.jpe?g$", re.IGNORECASE)


@dataclass(frozen=True)
class _Listing:
    """Validation images in the official order: number (from 1), path and label of each."""

    numbers: NDArray[np.int64]
    paths: list[str]
    labels: Labels


class ImageNet(ImageFiles):
    """ImageNet (ILSVRC 2012), as class folders or as the flat validation images with the development kit.

    The validation images are split by their official number, so both layouts, and :class:`ImageNetC`, have
    the same images in the same order in each split. Labels are positions in the sorted WordNet ids, as every
    published classifier has them.

    Parameters
    ----------
    root : path
        Either ``root/val/n01440764/ILSVRC2012_val_00000293.JPEG`` (and ``root/train/n01440764/...``), or the
        flat ``root/val/ILSVRC2012_val_00000001.JPEG`` with ``root/ILSVRC2012_devkit_t12/data/``.
    split : {"train", "train-1%", "val", "test", "val+test"}
        "val" and "test" are a fixed seeded split of the official 50,000 validation images into 12,500 and
        37,500; "val+test" is all of them; "train-1%" is a fixed seeded hundredth of the training images.
    transform : callable, optional
        Gets each image as an RGB ``PIL.Image`` and gives the image to yield, before any corruption. By
        default the published evaluation transform: short side to 256, centre 224 x 224. None leaves images as
        they are.
    complete : bool
        Whether to insist on all of the images; False reads what is there, with the right labels and splits.

    Examples
    --------
    >>> ImageNet.splits
    ('train', 'train-1%', 'val', 'test', 'val+test')
    """

    splits = ("train", "train-1%", "val", "test", "val+test")

    def __init__(
        self,
        root: str | PathLike[str],
        split: str = "test",
        *,
        transform: Transform | None = EVALUATION_TRANSFORM,
        complete: bool = True,
    ) -> None:
        check_choice(split, self.splits, "split", "ImageNet")
        if split.startswith("train"):
            paths, labels = _list_training(Path(root), complete)
            if split == "train-1%":
                chosen = seeded_part(len(paths), max(1, round(len(paths) / 100)))
                paths, labels = [paths[i] for i in chosen], labels[chosen]
        else:
            listing = _part(_list_validation(Path(root), complete), split, Path(root))
            paths, labels = listing.paths, listing.labels
        super().__init__(paths, labels, IMAGENET_WNIDS, name="ImageNet", split=split, transform=transform)
        self._complete = complete

    def published(self, root: str | PathLike[str], corruption: str, severity: int) -> ImageNetC:
        """Read this split of the validation images under a published corruption; see :class:`ImageNetC`."""
        return ImageNetC(root, corruption, severity, self.split, complete=self._complete)


class ImageNetC(ImageFiles):
    """The published ImageNet-C: the validation images under one corruption at one severity.

    Parameters
    ----------
    root : path
        The folder that holds ``fog/3/n01440764/ILSVRC2012_val_00000293.JPEG`` and so on; the archives' own
        folders (``weather/fog/3/...``) are understood too.
    corruption : str
        The name of a corruption's folder.
    severity : int
        1 to 5.
    split : {"val", "test", "val+test"}
        As in :class:`ImageNet`: the same images in the same order.
    transform : callable, optional
        The files are 224 x 224 already; by default their centre 224 x 224 is taken, which checks that.
    complete : bool
        Whether to insist on all 50,000 images; False reads what is there.

    Examples
    --------
    >>> ImageNetC.splits
    ('val', 'test', 'val+test')
    """

    splits = ("val", "test", "val+test")

    def __init__(
        self,
        root: str | PathLike[str],
        corruption: str,
        severity: int,
        split: str = "test",
        *,
        transform: Transform | None = ResizeCrop(None, 224),  # noqa: B008 (frozen)
        complete: bool = True,
    ) -> None:
        check_choice(split, self.splits, "split", "ImageNet-C")
        check_severity(severity, "ImageNet-C")
        tree = first_existing(
            [Path(root, family, corruption, str(severity)) for family in _FAMILIES],
            f"ImageNet-C's {corruption}, severity {severity},",
            "Get noise.tar, blur.tar, weather.tar, digital.tar and extra.tar from the ImageNet-C record on "
            f"Zenodo and unpack them in {root}, "
            f"so that {Path(root, corruption, str(severity), IMAGENET_WNIDS[0])} is there.",
        )
        listing = _part(_check_validation(_list_wnid_folders(tree), tree, complete), split, tree)
        super().__init__(
            listing.paths,
            listing.labels,
            IMAGENET_WNIDS,
            name=f"ImageNet-C/{corruption}-{severity}",
            split=split,
            transform=transform,
        )
        self.corruption, self.severity = corruption, severity


def _part(listing: _Listing, split: str, where: Path) -> _Listing:
    """Take the images of a split; membership is by official number, whatever else is missing."""
    if split == "val+test":
        return listing
    choose = seeded_part if split == "val" else seeded_rest
    chosen = np.flatnonzero(np.isin(listing.numbers - 1, choose(VALIDATION_SIZE, VALIDATION_SIZE // 4)))
    if not len(chosen):
        raise DatasetError(f"{where} has no image of the split {split!r}")
    return _Listing(listing.numbers[chosen], [listing.paths[i] for i in chosen], listing.labels[chosen])


def _list_training(root: Path, complete: bool) -> tuple[list[str], Labels]:
    tree = first_existing(
        [root / "train"],
        "ImageNet's training set",
        "Get ILSVRC2012_img_train.tar from the ImageNet home page and unpack it and the archives inside it, "
        f"one folder a class, so that {root / 'train' / IMAGENET_WNIDS[0] / 'n01440764_18.JPEG'} is there.",
    )
    paths, labels = _walk_wnid_folders(tree)
    if not paths:
        raise MissingDatasetError(f"{tree} has class folders but no images")
    if complete and len(paths) != TRAIN_SIZE:
        raise DatasetError(_incomplete(tree, len(paths), TRAIN_SIZE))
    return paths, labels


def _list_validation(root: Path, complete: bool) -> _Listing:
    tree = first_existing(
        [root / "val", root / "ILSVRC2012_img_val"],
        "ImageNet's validation set",
        "Get ILSVRC2012_img_val.tar and ILSVRC2012_devkit_t12.tar.gz from the ImageNet home page; unpack the "
        f"images in {root / 'val'} and the kit in {root}, so that "
        f"{root / 'val' / 'ILSVRC2012_val_00000001.JPEG'} and "
        f"{root / 'ILSVRC2012_devkit_t12' / 'data' / 'meta.mat'} are there. "
        f"With the images in class folders in {root / 'val'} the kit is not needed.",
    )
    flat = list_images(tree)
    if not flat:
        return _check_validation(_list_wnid_folders(tree), tree, complete)
    numbers = _numbers(flat)
    truth = devkit_labels(root / "ILSVRC2012_devkit_t12" / "data", IMAGENET_WNIDS, VALIDATION_SIZE)
    return _check_validation(_Listing(numbers, flat, truth[numbers - 1]), tree, complete)


def _list_wnid_folders(tree: Path) -> _Listing:
    paths, labels = _walk_wnid_folders(tree)
    numbers = _numbers(paths)
    order = np.argsort(numbers, kind="stable")
    return _Listing(numbers[order], [paths[i] for i in order], labels[order])


def _walk_wnid_folders(tree: Path) -> tuple[list[str], Labels]:
    """List a tree with one folder a WordNet id; labels come from the ids, not from which folders are there."""
    label_of = {wnid: label for label, wnid in enumerate(IMAGENET_WNIDS)}
    folders = list_folders(tree)
    strange = [name for name in folders if name not in label_of]
    if strange or not folders:
        found = f"{', '.join(strange[:3])}, which is none" if strange else "no folder"
        raise DatasetError(
            f"{tree}: expected folders named after ImageNet's 1,000 WordNet ids (n01440764, ...), found "
            f"{found}. Other image trees are read by ImageFolder."
        )
    images = [list_images(tree / name) for name in folders]
    labels = np.repeat(np.array([label_of[name] for name in folders], np.int64), [len(paths) for paths in images])
    return [path for of_class in images for path in of_class], labels


def _numbers(paths: Sequence[str]) -> NDArray[np.int64]:
    """Give the official numbers, which are in the file names."""
    found = [_VALIDATION_NAME.search(path) for path in paths]
    strange = [path for path, match in zip(paths, found, strict=True) if match is None]
    if strange:
        raise DatasetError(
            f"{strange[0]}: validation images must keep their official names, ILSVRC2012_val_########.JPEG: "
            "the number says which split an image belongs to"
        )
    numbers = np.array([int(match[1]) for match in found if match], np.int64)
    outside = np.flatnonzero((numbers < 1) | (numbers > VALIDATION_SIZE))
    if len(outside):
        raise DatasetError(f"{paths[outside[0]]}: the official numbers run from 1 to {VALIDATION_SIZE:,}")
    return numbers


def _check_validation(listing: _Listing, tree: Path, complete: bool) -> _Listing:
    unique, counts = np.unique(listing.numbers, return_counts=True)
    if (counts > 1).any():
        raise DatasetError(f"{tree} has the validation image number {unique[counts > 1][0]} more than once")
    if complete and len(unique) != VALIDATION_SIZE:
        raise DatasetError(_incomplete(tree, len(unique), VALIDATION_SIZE))
    if not len(unique):
        raise MissingDatasetError(f"{tree} has no images")
    return listing


def _incomplete(tree: Path, found: int, expected: int) -> str:
    return (
        f"{tree} has {found:,} of the {expected:,} images; unpack the archive again, "
        "or pass complete=False to use what is there"
    )
