"""Published CIFAR-10 networks on photographs of the same classes that were taken by others: ImageNet's.

The data folder contains ``cifar-10-batches-py/``, ``resnet20-*.th`` to ``resnet56-*.th``, ``tiny-imagenet-200/`` and
``imagenet/CLASS_NUMBER/*.JPEG`` (five validation images per class).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np

from densecal.shift import CIFAR10, Dataset, ResizeCrop
from densecal.shift.datasets.cifar import CIFAR10_CLASSES
from densecal.shift.datasets.files import ImageFiles
from densecal.shift.datasets.imagenet import IMAGENET_WNIDS
from reproduction.classifiers import CIFAR_RESNET_LAYERS, find_classifier
from reproduction.measuring.measurements import CLEAN, VAL, Measurements
from reproduction.measuring.reading import LOGITS, read_dataset
from reproduction.measuring.run import find_weights
from reproduction.natural.images import perturbed_images
from reproduction.natural.vector_network import measure, split_rows
from reproduction.networks import load_network

NETWORKS = tuple(f"c10-resnet{depth}" for depth in (20, 32, 44, 56))
BIRDS = (*range(7, 25), *range(80, 101), *range(127, 147))
CLASSES = {
    "airplane": (404, 895),
    "automobile": (436, 468, 511, 609, 627, 656, 817),
    "bird": BIRDS,
    "cat": range(281, 286),
    "dog": range(151, 269),
    "frog": range(30, 33),
    "horse": (339,),
    "ship": (484, 510, 554, 576, 625, 628, 724, 780, 814, 871, 914),
    "truck": (555, 569, 675, 867),
}
"""Classes of ImageNet by class of CIFAR-10, whose trucks are large and no pickups. ImageNet has no deer."""
MOST_PER_FOLDER = 250


def photographs(data: Path, seed: int) -> Iterator[Measurements]:
    """Evaluate four published CIFAR-10 networks, fitted on half of the CIFAR-10 test set, on ImageNet's photographs."""
    train, test = (CIFAR10(data, split) for split in ("train+val", "test"))
    val, rest = split_rows(len(test), seed, 0.5)
    sets = {VAL: test.subset(val), CLEAN: test.subset(rest), **read_photographs(data)}
    for name in NETWORKS:
        about = find_classifier(name)
        network = load_network(about, find_weights(about, data))
        read = partial(read_dataset, network, layers=(*CIFAR_RESNET_LAYERS, LOGITS), prepare=about.normalise)
        measured = {key: read(dataset) for key, dataset in sets.items()}
        measured |= perturbed_images(sets[VAL], seed, read)
        yield measure(f"photographs-{name.removeprefix('c10-')}-{seed}", read(train).features, measured)


def read_photographs(data: Path) -> dict[str, Dataset]:
    """Return the photographs of Tiny-ImageNet and of ImageNet's validation set, as 32x32 images of CIFAR-10's classes.

    Photographs are cropped to a square around the centre. Classes of which a set has no folder are left out.
    """
    labels = {number: CIFAR10_CLASSES.index(name) for name, numbers in CLASSES.items() for number in numbers}
    tiny = {data / "tiny-imagenet-200" / "train" / IMAGENET_WNIDS[one] / "images": y for one, y in labels.items()}
    full = {data / "imagenet" / str(one): y for one, y in labels.items()}
    return {"tiny-imagenet": _read_folders("tiny-imagenet", tiny), "imagenet": _read_folders("imagenet", full)}


def _read_folders(name: str, labels: dict[Path, int]) -> Dataset:
    found = [(str(path), y) for folder, y in labels.items() for path in sorted(folder.glob("*.JPEG"))[:MOST_PER_FOLDER]]
    if not found:
        raise FileNotFoundError(f"none of the folders of {name} exists; expected {next(iter(labels))} and others.")
    paths, classes = zip(*found, strict=True)
    crop = ResizeCrop(32, 32)
    return ImageFiles(list(paths), np.array(classes), CIFAR10_CLASSES, name=name, split="all", transform=crop)
