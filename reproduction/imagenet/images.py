"""The images of the study: crops of 224x224 pixels, one folder per class, and their division into parts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from densecal.shift import Dataset, ImageFolder, ResizeCrop
from densecal.shift.datasets.imagenet import IMAGENET_WNIDS
from reproduction.natural.vector_network import Labels

CROP = ResizeCrop(256, 224, "bicubic")
N_FIT = 2
"""Validation images per class for the fit; the first image is for the bank, the remaining ones for the evaluation."""


def crop_all(val: Path, train: Path, out: Path) -> None:
    """Write the crops of all images as WebP to ``out/val/CLASS`` and ``out/train/CLASS``.

    ``val`` has a folder per class, named by its number; the names of the files in ``train`` start with the WordNet id.
    """
    found = [("val", path, int(path.parent.name)) for path in sorted(val.glob("*/*.JPEG"))]
    found += [("train", path, IMAGENET_WNIDS.index(path.name[:9])) for path in sorted(train.glob("n*.JPEG"))]
    for part, path, label in found:
        target = out / part / f"{label:04d}" / f"{path.stem}.webp"
        target.parent.mkdir(parents=True, exist_ok=True)
        with Image.open(path) as image:
            CROP(image.convert("RGB")).save(target, quality=90, method=6)


def read_parts(folder: Path) -> dict[str, Dataset]:
    """Return the parts: ``train`` and ``held-out`` for banks, ``fit`` and ``test``, by the order of the file names."""
    val = ImageFolder(folder, "val")
    first = np.searchsorted(val.labels, val.labels)
    place: Labels = np.arange(len(val)) - first
    rows = {"held-out": place == 0, "fit": (place > 0) & (place <= N_FIT), "test": place > N_FIT}
    parts: dict[str, Dataset] = {name: val.subset(np.flatnonzero(chosen)) for name, chosen in rows.items()}
    return {"train": ImageFolder(folder, "train"), **parts}
