"""The out-of-domain sets of CIFAR: Fashion-MNIST, and ImageNet images of other classes."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from densecal.shift import Dataset, ImageArrays

Images = NDArray[np.uint8]

# ImageNet classes that overlap with a class of CIFAR-10 or are similar to one: airplanes, cars and trucks of any kind,
# birds, cats, antelopes (deer), dogs, wolves and foxes, frogs, horses and zebras, boats.
_RANGES = ((7, 24), (30, 32), (80, 100), (127, 146), (151, 293), (339, 340), (350, 353))
_SINGLE = """403 404 405 407 408 436 468 472 479 484 510 511 536 554 555 561 569 573 575 576 581 586 609 625 627 628 654
656 661 675 705 717 724 734 751 757 779 780 803 814 817 833 847 864 866 867 871 874 895 908 913 914"""
LIKE_CIFAR10 = {int(number) for number in _SINGLE.split()} | {
    number for first, last in _RANGES for number in range(first, last + 1)
}


def open_out_of_domain(data: str | Path) -> dict[str, Dataset]:
    """Open the sets next to a data set, in ``fashion-mnist`` and ``imagenet``; their labels are all zero."""
    readers = {"fashion-mnist": read_fashion_mnist, "imagenet": read_imagenet_crops}
    found = {name: read(Path(data) / name) for name, read in readers.items() if (Path(data) / name).is_dir()}
    return {
        name.removesuffix("-mnist"): ImageArrays(images, np.zeros(len(images), int)) for name, images in found.items()
    }


def read_fashion_mnist(folder: Path) -> Images:
    """Return the 10,000 Fashion-MNIST test images, zero-padded to 32x32, as RGB."""
    raw = gzip.decompress((folder / "t10k-images-idx3-ubyte.gz").read_bytes())
    grey = np.frombuffer(raw, np.uint8, offset=16).reshape(-1, 28, 28, 1)
    return np.repeat(np.pad(grey, ((0, 0), (2, 2), (2, 2), (0, 0))), 3, axis=3)


def read_imagenet_crops(folder: Path) -> Images:
    """Return the central square of ImageNet images that are not similar to CIFAR-10's classes, resized to 32x32."""
    from PIL import Image

    crops = []
    for path in sorted(folder.glob("*.jpg")):
        if int(path.stem) not in LIKE_CIFAR10:
            image = Image.open(path).convert("RGB")
            side = min(image.size)
            left, top = (image.width - side) // 2, (image.height - side) // 2
            box = (left, top, left + side, top + side)
            crops.append(np.asarray(image.resize((32, 32), Image.Resampling.BOX, box=box)))
    return np.stack(crops)
