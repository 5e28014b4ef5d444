"""Check that the training and the validation loader do not share samples."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any

from torch.utils.data import DataLoader, IterableDataset, Subset


def check_disjoint(train_loader: Iterable[Any], val_loader: Iterable[Any]) -> None:
    """Raise if both loaders are the same object, or read the same samples of one data set object."""
    if train_loader is val_loader:
        raise ValueError(_message("train_loader and val_loader are the same object"))
    if not isinstance(train_loader, DataLoader) or not isinstance(val_loader, DataLoader):
        return
    if _unwrap(train_loader.dataset) is not _unwrap(val_loader.dataset):
        return
    if isinstance(train_loader.dataset, IterableDataset):
        raise ValueError(_message("train_loader and val_loader read the same data set object"))
    shared = len(_samples(train_loader) & _samples(val_loader))
    if shared:
        raise ValueError(_message(f"train_loader and val_loader share {shared:,} samples of one data set object"))


def _message(found: str) -> str:
    return (
        f"{found}. A calibrator that is fitted on training data makes new data look too certain. Pass as val_loader "
        "data that the classifier was not trained on, such as the other part of torch.utils.data.random_split."
    )


def _unwrap(dataset: Any) -> Any:
    while isinstance(dataset, Subset):
        dataset = dataset.dataset
    return dataset


def _samples(loader: DataLoader[Any]) -> set[int]:
    """Return the indices that the loader reads, as indices of the innermost data set."""
    given: Any = loader.sampler if loader.batch_sampler is None else chain.from_iterable(loader.batch_sampler)
    rows = [int(row) for row in given]
    dataset: Any = loader.dataset
    while isinstance(dataset, Subset):
        rows = [int(dataset.indices[row]) for row in rows]
        dataset = dataset.dataset
    return set(rows)
