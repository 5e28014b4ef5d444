"""ImageNet (ILSVRC 2012) in its two usual layouts, and the published ImageNet-C."""

from __future__ import annotations

import re
from collections.abc import Sequence
from os import PathLike
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from densecal.shift.datasets.checks import (
    DatasetError,
    Labels,
    check_choice,
    check_count,
    check_severity,
    find_first,
    published_file,
    read_class_names,
    seeded_split,
)
from densecal.shift.datasets.files import ImageFiles, ResizeCrop, Transform, join_classes, list_folders, list_images

TRAIN_SIZE, VALIDATION_SIZE = 1_281_167, 50_000
IMAGENET_WNIDS = read_class_names("imagenet_wnids.txt")

_LABEL_OF_WNID = {wnid: label for label, wnid in enumerate(IMAGENET_WNIDS)}
_FAMILIES = ("", "noise", "blur", "weather", "digital", "extra")
_VALIDATION_NAME = re.compile(r"[/\\]ILSVRC2012_val_(\d{8})\.jpe?g$", re.IGNORECASE)


class ImageNet(ImageFiles):
    """ImageNet (ILSVRC 2012), as class folders or as the flat validation images with the development kit.

    The validation images are split by their official number, so both layouts, and :class:`ImageNetC`, have
    the same images in the same order in each split. Labels are positions in the sorted WordNet ids, as in
    published classifiers.

    Parameters
    ----------
    root : path
        Either ``root/val/n01440764/ILSVRC2012_val_00000293.JPEG`` (and ``root/train/n01440764/...``), or the
        flat ``root/val/ILSVRC2012_val_00000001.JPEG`` with ``root/ILSVRC2012_devkit_t12/data/``.
    split : {"train", "train-1%", "val", "test", "val+test"}
        "val" and "test" are a fixed seeded split of the official 50,000 validation images into 12,500 and
        37,500; "val+test" is all of them; "train-1%" is a fixed seeded 1 % of the training images.
    transform : callable, optional
        As in :class:`ImageFolder`. By default the published evaluation transform: short side to 256, central
        224 x 224 pixels.
    complete : bool
        Whether to require all images; False reads the images that are present, with their official labels and splits.
    """

    splits = ("train", "train-1%", "val", "test", "val+test")

    def __init__(
        self,
        root: str | PathLike[str],
        split: str = "test",
        *,
        transform: Transform | None = ResizeCrop(256, 224),  # noqa: B008 (frozen)
        complete: bool = True,
    ) -> None:
        check_choice(split, self.splits, "split", "ImageNet")
        if split.startswith("train"):
            paths, labels = _list_training(Path(root), complete)
            if split == "train-1%":
                chosen, _ = seeded_split(len(paths), max(1, round(len(paths) / 100)))
                paths, labels = [paths[i] for i in chosen], labels[chosen]
        else:
            paths, labels = _list_validation(Path(root), split, complete)
        super().__init__(paths, labels, IMAGENET_WNIDS, name="ImageNet", split=split, transform=transform)
        self._complete = complete

    def published(self, root: str | PathLike[str], corruption: str, severity: int) -> ImageNetC:
        """Open the published corrupted copy of this split; see :class:`ImageNetC`."""
        return ImageNetC(root, corruption, severity, self.split, complete=self._complete)


class ImageNetC(ImageFiles):
    """The published ImageNet-C: the validation images under one corruption at one severity.

    Parameters
    ----------
    root : path
        The folder that holds ``fog/3/n01440764/ILSVRC2012_val_00000293.JPEG`` and so on, or the folders of the
        archives (``weather/fog/3/...``).
    corruption : str
        The name of the folder of a corruption.
    severity : int
        1 to 5.
    split : {"val", "test", "val+test"}
        As in :class:`ImageNet`: the same images in the same order.
    transform : callable, optional
        By default crops the central 224 x 224 pixels, the size of the published images; smaller images are an error.
    complete : bool
        Whether to require all 50,000 images; False reads the images that are present.
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
        tree = find_first(
            [Path(root, family, corruption, str(severity)) for family in _FAMILIES],
            f"ImageNet-C's {corruption}, severity {severity},",
            "Download noise.tar, blur.tar, weather.tar, digital.tar and extra.tar from the ImageNet-C record on "
            f"Zenodo and unpack them in {root}, "
            f"so that {Path(root, corruption, str(severity), IMAGENET_WNIDS[0])} exists.",
        )
        paths, labels = _choose_split(tree, *_list_class_folders(tree), split, complete)
        name = f"ImageNet-C/{corruption}-{severity}"
        super().__init__(paths, labels, IMAGENET_WNIDS, name=name, split=split, transform=transform)
        self.corruption, self.severity = corruption, severity


def _list_training(root: Path, complete: bool) -> tuple[list[str], Labels]:
    tree = find_first(
        [root / "train"],
        "ImageNet's training set",
        "Download ILSVRC2012_img_train.tar from the ImageNet home page and unpack it and the archives inside it, "
        f"one folder per class, so that {root / 'train' / IMAGENET_WNIDS[0] / 'n01440764_18.JPEG'} exists.",
    )
    paths, labels = _list_class_folders(tree)
    check_count(tree, len(paths), TRAIN_SIZE, "images", complete=complete)
    return paths, labels


def _list_validation(root: Path, split: str, complete: bool) -> tuple[list[str], Labels]:
    tree = find_first(
        [root / "val", root / "ILSVRC2012_img_val"],
        "ImageNet's validation set",
        "Download ILSVRC2012_img_val.tar and ILSVRC2012_devkit_t12.tar.gz from the ImageNet home page; unpack the "
        f"images in {root / 'val'} and the kit in {root}, so that "
        f"{root / 'val' / 'ILSVRC2012_val_00000001.JPEG'} and "
        f"{root / 'ILSVRC2012_devkit_t12' / 'data' / 'meta.mat'} exist. "
        f"With the images in class folders in {root / 'val'} the kit is not needed.",
    )
    paths = list_images(tree)
    if paths:
        labels = _devkit_labels(root / "ILSVRC2012_devkit_t12" / "data")[_numbers(paths) - 1]
    else:
        paths, labels = _list_class_folders(tree)
    return _choose_split(tree, paths, labels, split, complete)


def _choose_split(tree: Path, paths: list[str], labels: Labels, split: str, complete: bool) -> tuple[list[str], Labels]:
    """Return the images of a split in the order of their official numbers, which determine the split."""
    numbers = _numbers(paths)
    unique, counts = np.unique(numbers, return_counts=True)
    if (counts > 1).any():
        raise DatasetError(f"{tree} has the validation image number {unique[counts > 1][0]} more than once")
    check_count(tree, len(unique), VALIDATION_SIZE, "images", complete=complete)
    chosen = np.argsort(numbers)
    if split != "val+test":
        val, test = seeded_split(VALIDATION_SIZE, VALIDATION_SIZE // 4)
        chosen = chosen[np.isin(numbers[chosen] - 1, val if split == "val" else test)]
    if not len(chosen):
        raise DatasetError(f"{tree} has no image of the split {split!r}")
    return [paths[i] for i in chosen], labels[chosen]


def _list_class_folders(tree: Path) -> tuple[list[str], Labels]:
    """Return the images of a tree with one folder per WordNet id; labels do not depend on which folders are present."""
    folders = list_folders(tree)
    foreign = [name for name in folders if name not in _LABEL_OF_WNID]
    if foreign or not folders:
        raise DatasetError(
            f"{tree}: expected folders named after ImageNet's 1,000 WordNet ids (n01440764, ...), found "
            f"{', '.join(foreign[:3]) or 'no folder'}. Use ImageFolder for other image trees."
        )
    return join_classes([list_images(tree / name) for name in folders], [_LABEL_OF_WNID[name] for name in folders])


def _numbers(paths: Sequence[str]) -> NDArray[np.int64]:
    """Return the official numbers in the file names, starting at 1."""
    numbers = np.empty(len(paths), np.int64)
    for i, path in enumerate(paths):
        match = _VALIDATION_NAME.search(path)
        if match is None or not 1 <= int(match[1]) <= VALIDATION_SIZE:
            raise DatasetError(
                f"{path}: validation images must keep their official names, ILSVRC2012_val_00000001.JPEG to "
                f"ILSVRC2012_val_{VALIDATION_SIZE:08d}.JPEG, because the number determines the split of an image"
            )
        numbers[i] = int(match[1])
    return numbers


def _devkit_labels(folder: Path) -> Labels:
    """Return the labels of all validation images in the order of their official numbers, from the development kit.

    The kit numbers the classes in its own order (``ILSVRC2012_ID``, from 1). ``meta.mat`` maps these numbers to
    WordNet ids, and a label is the position of the id in the sorted ids.
    """
    from scipy.io import loadmat

    kit = "ILSVRC2012_devkit_t12.tar.gz from the ImageNet home page, which has the labels of flat validation images"
    truth_file = folder / "ILSVRC2012_validation_ground_truth.txt"
    with published_file(folder / "meta.mat", kit):
        synsets = np.atleast_1d(loadmat(folder / "meta.mat", squeeze_me=True)["synsets"])
        classes = synsets[synsets["num_children"] == 0]  # the other nodes of the WordNet tree are no classes
        label_of = {int(kit): _LABEL_OF_WNID[wnid] for kit, wnid in classes[["ILSVRC2012_ID", "WNID"]]}
        if sorted(label_of.values()) != list(range(len(IMAGENET_WNIDS))):
            raise ValueError(f"expected {len(IMAGENET_WNIDS):,} classes, found {len(set(label_of.values())):,}")
    with published_file(truth_file, kit):
        numbers = [int(line) for line in truth_file.read_text().split()]
        if len(numbers) != VALIDATION_SIZE:
            raise ValueError(f"expected {VALIDATION_SIZE:,} class numbers, found {len(numbers):,}")
        return np.array([label_of[number] for number in numbers], np.int64)
