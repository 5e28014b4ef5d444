"""ObjectNet: photographs of objects in unusual settings, with 200 classes that are not in ImageNet."""

from __future__ import annotations

import json
from os import PathLike
from pathlib import Path

from densecal.shift.datasets.checks import DatasetError, check_choice, check_count, find_first, published_file
from densecal.shift.datasets.files import ImageFiles, ResizeCrop, Transform, join_classes, list_folders, list_images

_CLASS_COUNTS = {"ood": 200, "overlap": 113, "all": 313}


class ObjectNet(ImageFiles):
    """ObjectNet 1.0, without the red border of its images.

    Parameters
    ----------
    root : path
        The folder that holds ``objectnet-1.0`` (with ``images/CLASS/*.png`` and ``mappings/*.json``), or that
        folder itself.
    split : {"ood", "overlap", "all"}
        "ood" has the 200 classes that are not in ImageNet, for out-of-distribution detection; "overlap" has the 113
        classes that are; "all" has both. Labels are positions in :attr:`classes`, not ImageNet labels.
    transform : callable, optional
        As in :class:`ImageFolder`. By default: crop the border, resize the short side to 256, crop the central
        224 x 224 pixels.
    complete : bool
        Whether to require all 313 classes; False reads the classes that are present.
    """

    splits = ("ood", "overlap", "all")

    def __init__(
        self,
        root: str | PathLike[str],
        split: str = "ood",
        *,
        # The published images have a red border that marks them as test data.
        transform: Transform | None = ResizeCrop(256, 224, border=2),  # noqa: B008 (frozen)
        complete: bool = True,
    ) -> None:
        check_choice(split, self.splits, "split", "ObjectNet")
        home = Path(root, "objectnet-1.0")
        base = find_first(
            [home / "images", Path(root, "images")],
            "ObjectNet",
            f"Download objectnet-1.0.zip from the ObjectNet home page and unpack it in {root} with the password given "
            f"there, so that {home / 'images'} and {home / 'mappings'} exist.",
        ).parent
        folders = _folders_of_split(base, split, complete)
        images = [list_images(base / "images" / name) for name in folders]
        for name, paths in zip(folders, images, strict=True):
            if not paths:
                raise DatasetError(f"{base / 'images' / name} has no images; unpack the archive again")
        paths, labels = join_classes(images, range(len(folders)))
        super().__init__(paths, labels, folders, name="ObjectNet", split=split, transform=transform)


def _folders_of_split(base: Path, split: str, complete: bool) -> list[str]:
    """Return the sorted class folders of a split; the mapping files list the classes shared with ImageNet."""
    label_of_folder = _read_mapping(base / "mappings" / "folder_to_objectnet_label.json")
    in_imagenet = _read_mapping(base / "mappings" / "objectnet_to_imagenet_1k.json")
    unknown = set(in_imagenet) - set(label_of_folder.values())
    if unknown:
        raise DatasetError(f"{base / 'mappings'}: the two files do not match: no folder has the label {min(unknown)!r}")
    present = set(list_folders(base / "images"))
    foreign = present - set(label_of_folder)
    if foreign:
        raise DatasetError(f"{base / 'images' / min(foreign)} is not a folder of ObjectNet 1.0")
    found = [
        name
        for name, label in sorted(label_of_folder.items())
        if name in present and (split == "all" or (label in in_imagenet) == (split == "overlap"))
    ]
    classes = f"classes of the split {split!r}"
    check_count(base / "images", len(found), _CLASS_COUNTS[split], classes, complete=complete)
    return found


def _read_mapping(path: Path) -> dict[str, str]:
    with published_file(path, "objectnet-1.0.zip from the ObjectNet home page"):
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, dict) or not all(isinstance(value, str) for value in content.values()):
            raise TypeError("expected a JSON object with string values")
        return content
