"""Loader of the training samples that are kept in the bank."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from itertools import chain
from typing import Any

import numpy as np
from torch.utils.data import BatchSampler, DataLoader, IterableDataset

from densecal.density.defaults import BankSize, choose_bank_size
from densecal.torch.extraction import length_of


def bank_loader(loader: Iterable[Any], bank_size: BankSize, seed: int) -> tuple[Iterable[Any], int | None]:
    """Return a loader of the training samples that the bank keeps, and their number.

    Samples are drawn from the indices of the loader's sampler, without replacement, so that a small bank does not need
    a pass over all training data. Other indices are never read: they may be validation data. A loader without a
    sampler is returned unchanged, with None as the number; the bank is then drawn from the features.
    """
    if not _has_indices(loader):
        return loader, None
    source: DataLoader[Any] = loader  # type: ignore[assignment]
    sampler: Any = source.batch_sampler
    is_plain = type(sampler) is BatchSampler
    if is_plain:  # The bank can use the samples that drop_last skips.
        sampler = BatchSampler(sampler.sampler, sampler.batch_size, drop_last=False)
    batches = _epoch(sampler, length_of(source.dataset))
    try:
        rows = sorted(set(chain.from_iterable(batches)))
    except TypeError:  # The indices cannot be sorted.
        return loader, None
    size = choose_bank_size(len(rows), bank_size)
    chosen = np.sort(np.random.default_rng(seed).choice(len(rows), size, replace=False)).tolist()
    kept = [rows[position] for position in chosen]
    if is_plain:
        drawn = [kept[start : start + sampler.batch_size] for start in range(0, size, sampler.batch_size)]
    else:
        drawn = _restricted(batches, set(kept))
    subset: DataLoader[Any] = DataLoader(
        source.dataset,
        batch_sampler=drawn,
        num_workers=source.num_workers,
        collate_fn=source.collate_fn,
        pin_memory=source.pin_memory,
        timeout=source.timeout,
        worker_init_fn=source.worker_init_fn,
        multiprocessing_context=source.multiprocessing_context,
    )
    return subset, size


def _has_indices(loader: Iterable[Any]) -> bool:
    """Return whether the loader yields exactly the batches of its batch sampler."""
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        return False
    return loader.batch_sampler is not None and type(loader).__iter__ is DataLoader.__iter__


def _epoch(sampler: Any, rows: int | None) -> list[list[Any]]:
    """Return the batches of one epoch; an infinite sampler stops at its own length and that of the data set."""
    count = length_of(sampler)
    batches: list[list[Any]] = []
    read = 0
    for batch in sampler:
        batches.append([_index(given) for given in batch])
        read += len(batches[-1])
        if (count, rows) != (None, None) and len(batches) >= (count or 0) and read >= (rows or 0):
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
