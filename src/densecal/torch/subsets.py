"""A loader of the training samples that a bank keeps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
from torch.utils.data import DataLoader, IterableDataset, Subset

from densecal.choices import choose_bank_size


def bank_loader(
    loader: Iterable[Any], bank: Literal["auto"] | int | float | None, seed: int
) -> tuple[Iterable[Any], int | None]:
    """Return a loader of the training samples that the bank keeps, and how many there are, if the loader tells.

    Reading 1 % of a large training set should not cost a pass over all of it, so the samples are drawn from the data
    set behind the loader where there is one; else every batch is read, and the bank drawn from the features.
    """
    is_map = isinstance(loader, DataLoader) and not isinstance(loader.dataset, IterableDataset)
    if not is_map or loader.batch_size is None:  # type: ignore[attr-defined]
        return loader, None
    source: DataLoader[Any] = loader  # type: ignore[assignment]
    available = len(source.dataset)  # type: ignore[arg-type]
    size = choose_bank_size(available, bank)
    if size == available and not source.drop_last:
        return loader, size
    rows = np.sort(np.random.default_rng(seed).choice(available, size, replace=False))
    subset: DataLoader[Any] = DataLoader(
        Subset(source.dataset, rows.tolist()),
        batch_size=source.batch_size,
        num_workers=source.num_workers,
        collate_fn=source.collate_fn,
        pin_memory=source.pin_memory,
        worker_init_fn=source.worker_init_fn,
    )
    return subset, size
