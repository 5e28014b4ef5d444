"""Three sets of digits as 32x32 colour images: MNIST (idx files), USPS (usps_all.mat) and SVHN (full numbers)."""

from __future__ import annotations

import csv
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from densecal.io.atomic_files import atomic_write
from densecal.shift import Dataset, ImageArrays

Pixels = NDArray[np.uint8]
MOST = {"mnist": 20_000, "usps": 11_000, "svhn": 8_000}
"""Images of each set: enough for three small networks."""


def read_digits(data: Path) -> dict[str, Dataset]:
    """Return the three sets from ``digits.npz``, which is made from the original files where it is missing.

    The files are ``mnist/train-images-idx3-ubyte`` and ``...-labels-idx1-ubyte``, ``usps_all.mat``, and SVHN as
    ``svhn/images/train/N.png`` with the boxes of the digits in ``svhn/data/train_labels.csv``.
    """
    kept = data / "digits.npz"
    if not kept.exists():
        arrays: dict[str, Any] = {}
        for name, read in (("mnist", read_mnist), ("usps", read_usps), ("svhn", read_svhn)):
            arrays[f"{name}_x"], arrays[f"{name}_y"] = read(data)
        with atomic_write(kept) as temporary, temporary.open("wb") as file:
            np.savez_compressed(file, **arrays)
    with np.load(kept) as stored:
        return {
            name: ImageArrays(_colour(stored[f"{name}_x"]), stored[f"{name}_y"].astype(int), name=name) for name in MOST
        }


def _colour(images: Pixels) -> Pixels:
    """Return 32x32 colour images: 16x16 images are enlarged, 28x28 ones padded with black."""
    if images.shape[1] == 16:
        images = np.stack(
            [np.asarray(Image.fromarray(one).resize((28, 28), Image.Resampling.BILINEAR)) for one in images]
        )
    if images.shape[1] == 28:
        images = np.pad(images, ((0, 0), (2, 2), (2, 2)))
    return images if images.ndim == 4 else np.repeat(images[..., None], 3, axis=3)


def read_mnist(data: Path) -> tuple[Pixels, Pixels]:
    """Return the first training images of MNIST."""
    count = MOST["mnist"]
    images = np.fromfile(data / "mnist" / "train-images-idx3-ubyte", np.uint8, offset=16).reshape(-1, 28, 28)
    labels = np.fromfile(data / "mnist" / "train-labels-idx1-ubyte", np.uint8, offset=8)
    return images[:count], labels[:count]


def read_usps(data: Path) -> tuple[Pixels, Pixels]:
    """Return USPS: 1,100 images of each of the digits 1, ..., 9, 0, stored as columns."""
    from scipy.io import loadmat

    columns = loadmat(data / "usps_all.mat")["data"]
    images = columns.transpose(2, 1, 0).reshape(-1, 16, 16).transpose(0, 2, 1)
    return images, np.repeat(np.r_[1:10, 0].astype(np.uint8), columns.shape[1])


def read_svhn(data: Path) -> tuple[Pixels, Pixels]:
    """Return digits cut from photographs of house numbers: a square around the box of each digit."""
    boxes = defaultdict(list)
    with (data / "svhn" / "data" / "train_labels.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            boxes[row["filename"]].append(row)
    images: list[Pixels] = []
    labels: list[int] = []
    for name in np.random.default_rng(0).permutation(sorted(boxes)):
        path = data / "svhn" / "images" / "train" / str(name)
        if len(images) >= MOST["svhn"]:
            break
        if path.exists():
            photograph = Image.open(path).convert("RGB")
            for row in boxes[name]:
                left, top, right, bottom = (float(row[side]) for side in ("xmin", "ymin", "xmax", "ymax"))
                x, y, half = (left + right) / 2, (top + bottom) / 2, max(right - left, bottom - top, 1) / 2
                box = (x - half, y - half, x + half, y + half)
                crop = photograph.transform((32, 32), Image.Transform.EXTENT, box, Image.Resampling.BILINEAR)
                images.append(np.asarray(crop))
                labels.append(int(row["class"]) % 10)
    count = MOST["svhn"]
    return np.stack(images[:count]), np.array(labels[:count], np.uint8)
