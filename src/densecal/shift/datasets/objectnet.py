"""ObjectNet: objects in unusual places, 200 of whose classes no ImageNet classifier knows."""

from __future__ import annotations

import json
from os import PathLike
from pathlib import Path

import numpy as np

from densecal.shift.datasets.checks import DatasetError, MissingDatasetError, check_choice, first_existing
from densecal.shift.datasets.files import ImageFiles, ResizeCrop, Transform, list_folders, list_images

# Every published image has a red frame, put there so that nobody trains on the set unknowingly.
OBJECTNET_TRANSFORM = ResizeCrop(256, 224, border=2)

CLASS_COUNTS = {"ood": 200, "overlap": 113, "all": 313}


class ObjectNet(ImageFiles):
    """ObjectNet 1.0; its red frame is cut off.

    Parameters
    ----------
    root : path
        The folder that holds ``objectnet-1.0`` (with ``images/CLASS/*.png`` and ``mappings/*.json``), or that
        folder itself.
    split : {"ood", "overlap", "all"}
        "ood" is the 200 classes outside ImageNet, for out-of-distribution detection; "overlap" the 113 that
        ImageNet has too; "all" both. A label is the position in :attr:`classes`, not an ImageNet label.
    transform : callable, optional
        Gets each image as an RGB ``PIL.Image`` and gives the image to yield. By default: the frame off, short
        side to 256, centre 224 x 224.
    complete : bool
        Whether to insist on all 313 classes; False reads those that are there.

    Examples
    --------
    >>> ObjectNet.splits
    ('ood', 'overlap', 'all')
    """

    splits = ("ood", "overlap", "all")

    def __init__(
        self,
        root: str | PathLike[str],
        split: str = "ood",
        *,
        transform: Transform | None = OBJECTNET_TRANSFORM,
        complete: bool = True,
    ) -> None:
        check_choice(split, self.splits, "split", "ObjectNet")
        base = first_existing(
            [Path(root, "objectnet-1.0", "images"), Path(root, "images")],
            "ObjectNet",
            f"Get objectnet-1.0.zip from the ObjectNet home page and unpack it in {root} (the page gives "
            "the password), "
            f"so that {Path(root, 'objectnet-1.0', 'images')} and {Path(root, 'objectnet-1.0', 'mappings')} "
            "are there.",
        ).parent
        folders = _folders_of_split(base, split, complete)
        images = [list_images(base / "images" / name) for name in folders]
        empty = [name for name, paths in zip(folders, images, strict=True) if not paths]
        if empty:
            raise DatasetError(f"{base / 'images' / empty[0]} has no images; unpack the archive again")
        super().__init__(
            [path for of_class in images for path in of_class],
            np.repeat(np.arange(len(folders), dtype=np.int64), [len(of_class) for of_class in images]),
            folders,
            name="ObjectNet",
            split=split,
            transform=transform,
        )


def _folders_of_split(base: Path, split: str, complete: bool) -> list[str]:
    """Give the class folders of a split, sorted; the mapping files say which classes ImageNet has too."""
    label_of_folder = _read_mapping(base / "mappings" / "folder_to_objectnet_label.json")
    in_imagenet = _read_mapping(base / "mappings" / "objectnet_to_imagenet_1k.json")
    unknown = set(in_imagenet) - set(label_of_folder.values())
    if unknown:
        raise DatasetError(f"{base / 'mappings'}: the two files do not fit: no folder is called {min(unknown)!r}")
    present = list_folders(base / "images")
    strange = [name for name in present if name not in label_of_folder]
    if strange:
        raise DatasetError(f"{base / 'images' / strange[0]} is no folder of ObjectNet 1.0")
    wanted = [
        name
        for name, label in sorted(label_of_folder.items())
        if split == "all" or (label in in_imagenet) == (split == "overlap")
    ]
    found = [name for name in wanted if name in set(present)]
    if complete and len(found) != CLASS_COUNTS[split]:
        raise DatasetError(
            f"{base / 'images'} has {len(found)} of the {CLASS_COUNTS[split]} classes of the split {split!r}; "
            "unpack the archive again, or pass complete=False to use what is there"
        )
    if not found:
        raise DatasetError(f"{base / 'images'} has no class of the split {split!r}")
    return found


def _read_mapping(path: Path) -> dict[str, str]:
    if not path.exists():
        raise MissingDatasetError(f"{path} is not there; it comes with objectnet-1.0.zip, beside the images")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DatasetError(f"{path} is damaged ({error}); unpack the archive again") from error
    if not isinstance(content, dict) or not all(isinstance(value, str) for value in content.values()):
        raise DatasetError(f"{path}: expected an object of names, as published")
    return content
