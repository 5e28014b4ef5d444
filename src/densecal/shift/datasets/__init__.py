"""Data sets: readers of the published files, and wrappers that corrupt any of them on the fly."""

from __future__ import annotations

from densecal.shift.datasets.arrays import ImageArrays
from densecal.shift.datasets.base import Dataset, Subset
from densecal.shift.datasets.checks import DatasetError, MissingDatasetError
from densecal.shift.datasets.cifar import CIFAR10, CIFAR10C, CIFAR100, CIFAR100C
from densecal.shift.datasets.files import ResizeCrop
from densecal.shift.datasets.folder import ImageFolder
from densecal.shift.datasets.imagenet import ImageNet, ImageNetC
from densecal.shift.datasets.objectnet import ObjectNet
from densecal.shift.datasets.registry import DATASETS, open_dataset
from densecal.shift.datasets.shifted import Condition, Perturbed, Shifted, conditions

__all__ = [
    "CIFAR10",
    "CIFAR10C",
    "CIFAR100",
    "CIFAR100C",
    "DATASETS",
    "Condition",
    "Dataset",
    "DatasetError",
    "ImageArrays",
    "ImageFolder",
    "ImageNet",
    "ImageNetC",
    "MissingDatasetError",
    "ObjectNet",
    "Perturbed",
    "ResizeCrop",
    "Shifted",
    "Subset",
    "conditions",
    "open_dataset",
]
