"""Loaders of batches: what may be passed as one, and which samples of its data set it reads."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from itertools import chain
from typing import Any

from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, Subset

from densecal.arrays import random_rows
from densecal.display import length_of


def check_loader(loader: object, expected: str = "a DataLoader or a list, [(inputs, labels)]") -> None:
    """Raise if a data set or a single batch is passed in the place of a loader."""
    if not hasattr(loader, "__iter__") and not hasattr(loader, "__getitem__"):
        raise TypeError(f"Expected a loader of batches, got {type(loader).__name__}. Pass {expected}.")
    if isinstance(loader, Dataset) and not hasattr(loader, "__iter__"):
        raise TypeError(
            f"Expected a loader of batches, got a {type(loader).__name__}, which yields single samples. Wrap it: "
            "DataLoader(dataset, batch_size=256), with the collate_fn of the training if there was one."
        )
    if isinstance(loader, Mapping | Tensor) or _is_batch(loader):
        raise TypeError(f"Expected a loader of batches, got one batch. Pass {expected}.")


def _is_batch(given: object) -> bool:
    """Return whether a tuple or list is one batch of inputs and labels; all batches of a list may have one axis."""
    if not isinstance(given, tuple | list):
        return False
    rows = [item for item in given if isinstance(item, Tensor) and item.ndim == 1]
    return bool(rows) and (isinstance(given, tuple) or len(rows) < len(given))


def check_disjoint(train_loader: Iterable[Any], val_loader: Iterable[Any]) -> None:
    """Raise if both loaders are the same object, or read the same samples of one data set object."""
    if train_loader is val_loader:
        raise ValueError(_message("train_loader and val_loader are the same object"))
    if not isinstance(train_loader, DataLoader) or not isinstance(val_loader, DataLoader):
        return
    if _innermost(train_loader.dataset) is not _innermost(val_loader.dataset):
        return
    if isinstance(train_loader.dataset, IterableDataset):
        raise ValueError(_message("train_loader and val_loader read the same data set object"))
    shared = len(_samples(train_loader) & _samples(val_loader))
    if shared:
        raise ValueError(_message(f"train_loader and val_loader share {shared:,} samples of one data set object"))


def _message(found: str) -> str:
    return (
        f"{found}. A calibrator that is fitted on training data is overconfident on new data. Pass as val_loader "
        "data that the classifier was not trained on, such as the other part of torch.utils.data.random_split."
    )


def _innermost(dataset: Any) -> Any:
    return _innermost(dataset.dataset) if isinstance(dataset, Subset) else dataset


def _samples(loader: DataLoader[Any]) -> set[Any]:
    """Return the indices that the loader reads, as indices of the innermost data set."""
    rows = list(chain.from_iterable(_epoch(loader)))
    dataset: Any = loader.dataset
    while isinstance(dataset, Subset):
        rows = [_index(dataset.indices[row]) for row in rows]
        dataset = dataset.dataset
    return set(rows)


def bank_loader(
    loader: Iterable[Any], choose_size: Callable[[int], int], seed: int
) -> tuple[Iterable[Any], int | None]:
    """Return a loader of the training samples that the bank is made of, and their number.

    Samples are drawn from the indices of the loader's sampler, never from others: they may be validation data. A loader
    without a sampler is returned unchanged, with None as the number; the bank is then drawn from the features.
    """
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        return loader, None
    # A subclass may yield other batches than those of its sampler.
    if loader.batch_sampler is None or type(loader).__iter__ is not DataLoader.__iter__:
        return loader, None
    batches = _epoch(loader)
    rows = sorted(set(chain.from_iterable(batches)))
    size = choose_size(len(rows))
    chosen = random_rows(len(rows), size, seed)
    kept = rows if chosen is None else [rows[position] for position in chosen]
    if type(loader.batch_sampler) is BatchSampler:
        length = loader.batch_sampler.batch_size
        drawn = [kept[start : start + length] for start in range(0, size, length)]
    else:
        drawn = _restricted(batches, set(kept))
    subset: DataLoader[Any] = DataLoader(
        loader.dataset,
        batch_sampler=drawn,
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        timeout=loader.timeout,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
    )
    return subset, size


def _epoch(loader: DataLoader[Any]) -> list[list[Any]]:
    """Return the indices of one epoch, batch by batch; those that drop_last skips are among them.

    An endless sampler stops at its own length and that of the data set.
    """
    sampler: Any = loader.batch_sampler
    if sampler is None:
        sampler = BatchSampler(loader.sampler, 1, drop_last=False)
    elif type(sampler) is BatchSampler:
        sampler = BatchSampler(sampler.sampler, sampler.batch_size, drop_last=False)
    count, n_rows = length_of(sampler), length_of(loader.dataset)
    batches: list[list[Any]] = []
    read = 0
    for batch in sampler:
        batches.append([_index(given) for given in batch])
        read += len(batches[-1])
        if (count, n_rows) != (None, None) and len(batches) >= (count or 0) and read >= (n_rows or 0):
            break
    return batches


def _restricted(batches: list[list[Any]], kept: set[Any]) -> list[list[Any]]:
    """Return the batches restricted to the kept rows, each row once. Batch grouping is preserved."""
    left = set(kept)
    drawn = []
    for batch in batches:
        rows = [row for row in dict.fromkeys(batch) if row in left]
        left.difference_update(rows)
        drawn += [rows] if rows else []
    return drawn


def _index(given: Any) -> Any:
    try:
        return operator.index(given)  # A sampler may yield tensors, which hash by identity.
    except TypeError:
        return given
