"""The labels of ImageNet's validation images, from the official development kit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from densecal.shift.datasets.checks import DatasetError, Labels, MissingDatasetError


def devkit_labels(folder: Path, wnids: Sequence[str], count: int) -> Labels:
    """Return the labels of all `count` validation images in the order of their official numbers.

    The kit numbers the classes in its own order (``ILSVRC2012_ID``, from 1); ``meta.mat`` maps these numbers to
    WordNet ids, and a label is the position of the id in ``wnids``.
    """
    truth_file, meta_file = folder / "ILSVRC2012_validation_ground_truth.txt", folder / "meta.mat"
    for file in (truth_file, meta_file):
        if not file.exists():
            raise MissingDatasetError(
                f"{file} not found; flat validation images need it for their labels. Download "
                f"ILSVRC2012_devkit_t12.tar.gz from the ImageNet home page and unpack it in {folder.parent.parent}."
            )
    label_of = _label_of_number(meta_file, wnids)
    try:
        numbers = [int(line) for line in truth_file.read_text().split()]
    except ValueError as error:
        raise DatasetError(f"{truth_file}: expected one class number per line ({error})") from error
    if len(numbers) != count:
        raise DatasetError(f"{truth_file} has {len(numbers):,} lines, not the official {count:,}; unpack the kit again")
    unknown = set(numbers) - set(label_of)
    if unknown:
        raise DatasetError(f"{truth_file} has the class number {min(unknown)}, which {meta_file} does not list")
    return np.array([label_of[number] for number in numbers], np.int64)


def _label_of_number(meta_file: Path, wnids: Sequence[str]) -> dict[int, int]:
    from scipy.io import loadmat

    position = {wnid: label for label, wnid in enumerate(wnids)}
    try:
        synsets = np.atleast_1d(loadmat(meta_file, squeeze_me=True)["synsets"])
        fields = (synsets[field] for field in ("ILSVRC2012_ID", "WNID", "num_children"))
        # Inner nodes of the WordNet tree, which have children, are no classes.
        wnid_of = {int(number): str(wnid) for number, wnid, children in zip(*fields, strict=True) if int(children) == 0}
    except Exception as error:  # a damaged .mat file can raise anything
        raise DatasetError(
            f"{meta_file} is damaged or not the kit's list of synsets ({type(error).__name__}: {error}); "
            "unpack the kit again"
        ) from error
    if set(wnid_of.values()) != set(position):
        raise DatasetError(f"{meta_file} does not list ImageNet's {len(wnids):,} classes; unpack the kit again")
    return {number: position[wnid] for number, wnid in wnid_of.items()}
