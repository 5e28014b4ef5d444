"""Data that moves: the 18 published corruptions, generic perturbations, and readers of data sets.

A name's module is imported when the name is first used: the tables need no torch, and a reader imports only what it
reads with.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from densecal.shift.corruptions import CORRUPTIONS, SEVERITIES, Corruption, corrupt
    from densecal.shift.datasets import (
        CIFAR10,
        CIFAR10C,
        CIFAR100,
        CIFAR100C,
        DATASETS,
        Condition,
        Dataset,
        DatasetError,
        ImageArrays,
        ImageFolder,
        ImageNet,
        ImageNetC,
        MissingDatasetError,
        ObjectNet,
        Perturbed,
        ResizeCrop,
        Shifted,
        Subset,
        conditions,
        open_dataset,
    )
    from densecal.shift.grid import corruption_grid
    from densecal.shift.perturbations import FAMILY_WEIGHTS, PERTURBATIONS, Perturbation, perturb, plan_perturbations

_HOME = {
    "CORRUPTIONS": "corruptions",
    "SEVERITIES": "corruptions",
    "Corruption": "corruptions",
    "corrupt": "corruptions",
    "FAMILY_WEIGHTS": "perturbations",
    "PERTURBATIONS": "perturbations",
    "Perturbation": "perturbations",
    "perturb": "perturbations",
    "plan_perturbations": "perturbations",
    "corruption_grid": "grid",
    "CIFAR10": "datasets",
    "CIFAR10C": "datasets",
    "CIFAR100": "datasets",
    "CIFAR100C": "datasets",
    "DATASETS": "datasets",
    "Condition": "datasets",
    "Dataset": "datasets",
    "DatasetError": "datasets",
    "ImageArrays": "datasets",
    "ImageFolder": "datasets",
    "ImageNet": "datasets",
    "ImageNetC": "datasets",
    "MissingDatasetError": "datasets",
    "ObjectNet": "datasets",
    "Perturbed": "datasets",
    "ResizeCrop": "datasets",
    "Shifted": "datasets",
    "Subset": "datasets",
    "conditions": "datasets",
    "open_dataset": "datasets",
}

__all__ = [
    "CIFAR10",
    "CIFAR10C",
    "CIFAR100",
    "CIFAR100C",
    "CORRUPTIONS",
    "DATASETS",
    "FAMILY_WEIGHTS",
    "PERTURBATIONS",
    "SEVERITIES",
    "Condition",
    "Corruption",
    "Dataset",
    "DatasetError",
    "ImageArrays",
    "ImageFolder",
    "ImageNet",
    "ImageNetC",
    "MissingDatasetError",
    "ObjectNet",
    "Perturbation",
    "Perturbed",
    "ResizeCrop",
    "Shifted",
    "Subset",
    "conditions",
    "corrupt",
    "corruption_grid",
    "open_dataset",
    "perturb",
    "plan_perturbations",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
