"""The labels of ImageNet's validation images, from the official development kit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from densecal.shift.datasets.checks import DatasetError, Labels, MissingDatasetError


def devkit_labels(folder: Path, wnids: Sequence[str], count: int) -> Labels:
    """Give the label of every validation image, in the order of the official numbers.

    The kit numbers the classes in an order of its own (``ILSVRC2012_ID``, from 1); ``meta.mat`` says which
    WordNet id each number means, and the label is that id's position in ``wnids``.

    Parameters
    ----------
    folder : Path
        ``ILSVRC2012_devkit_t12/data``.
    wnids : sequence of str
        The classes, in the order of the labels.
    count : int
        How many images the ground truth must cover.

    Returns
    -------
    ndarray of int64, shape (count,)
    """
    truth_file, meta_file = folder / "ILSVRC2012_validation_ground_truth.txt", folder / "meta.mat"
    for file in (truth_file, meta_file):
        if not file.exists():
            raise MissingDatasetError(
                f"{file} is not there, and flat validation images need it for their labels. Get "
                f"ILSVRC2012_devkit_t12.tar.gz from the ImageNet home page and unpack it in {folder.parent.parent}."
            )
    label_of = _label_of_id(meta_file, wnids)
    try:
        ids = np.array([int(line) for line in truth_file.read_text().split()], np.int64)
    except ValueError as error:
        raise DatasetError(f"{truth_file}: expected one class number a line ({error})") from error
    if len(ids) != count:
        raise DatasetError(f"{truth_file} has {len(ids):,} lines, the official one {count:,}; unpack the kit again")
    strange = set(ids.tolist()) - set(label_of)
    if strange:
        raise DatasetError(f"{truth_file} has the class number {min(strange)}, which {meta_file} does not know")
    return np.array([label_of[number] for number in ids.tolist()], np.int64)


def _label_of_id(meta_file: Path, wnids: Sequence[str]) -> dict[int, int]:
    """Read which label each of the kit's class numbers means."""
    from scipy.io import loadmat

    position = {wnid: label for label, wnid in enumerate(wnids)}
    try:
        synsets = np.atleast_1d(loadmat(meta_file, squeeze_me=True)["synsets"])
        # Inner nodes of the WordNet tree follow the 1,000 classes; they are no labels.
        pairs = [
            (int(number), str(wnid))
            for number, wnid, children in zip(
                synsets["ILSVRC2012_ID"], synsets["WNID"], synsets["num_children"], strict=True
            )
            if int(children) == 0
        ]
    except Exception as error:  # a damaged .mat file can raise anything at all
        raise DatasetError(
            f"{meta_file} is not the kit's list of synsets, or is damaged ({type(error).__name__}: {error}); "
            "unpack the kit again"
        ) from error
    if {wnid for _, wnid in pairs} != set(position):
        raise DatasetError(f"{meta_file} does not list ImageNet's {len(wnids):,} classes; unpack the kit again")
    return {number: position[wnid] for number, wnid in pairs}
