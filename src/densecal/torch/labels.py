"""Which item of a loader's batch holds the labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

ADVICE = "Give (inputs, labels), ((input, input), labels), or a dict with 'labels' among its keys."

SURELY_COUNTED = 16
"""So many numbers in a row count samples; fewer may be the labels of a set in the order of its classes."""


def find_labels(batch: Sequence[Any], start: int, samples: int) -> dict[int, Tensor]:
    """Return the items from ``start`` on that may be the labels, by their places; the first of them is taken.

    One integer a sample comes first; then integers in a column and one-hot rows; then one number of any kind, which
    the check of the labels will speak about.

    Examples
    --------
    >>> find_labels([torch.zeros(2, 9), torch.zeros(2, 5), [1, 0]], start=1, samples=2)
    {2: tensor([1, 0])}
    """
    found = {place: as_labels(item) for place, item in enumerate(batch) if place >= start}
    tensors = {place: item for place, item in found.items() if item is not None and len(item) == samples}
    kinds: tuple[Callable[[Tensor], bool], ...] = (_is_row_of_integers, _is_column_or_one_hot, _is_row)
    for is_of_kind in kinds:
        candidates = {place: flat(item) for place, item in tensors.items() if is_of_kind(item)}
        if candidates:
            return candidates
    last = tensors.get(len(batch) - 1)
    if last is not None and _is_soft(last):
        raise ValueError(
            f"Item {len(batch) - 1} of a batch looks like soft labels: rows that sum to 1, of shape "
            f"{tuple(last.shape)}. A calibration needs the true class of each sample; labels.argmax(dim=1) takes the "
            "likeliest."
        )
    return {}


def refuse_doubt(candidates: Mapping[int, Tensor], classes: int, cleared: set[int]) -> None:
    """Refuse a batch in which a later item could be the labels as well as the first that could.

    It could not where it numbers the samples: it counts up, or most of its numbers are several beyond the classes. One
    batch that shows this speaks for those that follow: the item's place joins ``cleared``.

    Examples
    --------
    >>> cleared = set()
    >>> refuse_doubt({1: torch.tensor([2, 0]), 2: torch.tensor([3, 7])}, 3, cleared)
    >>> cleared
    {2}
    >>> refuse_doubt({1: torch.tensor([2, 0]), 2: torch.tensor([1, 0])}, 3, set())
    Traceback (most recent call last):
    ValueError: The items 1 and 2 of a batch could both be its labels. Give (inputs, labels), ...
    """
    first, *later = candidates
    cleared |= {place for place in later if _numbers_samples(candidates[place], classes)}
    doubtful = [place for place in later if place not in cleared]
    if doubtful:
        named = " and ".join(map(str, [first, *doubtful]))
        raise ValueError(f"The items {named} of a batch could both be its labels. {ADVICE}")


def as_labels(item: Any) -> Tensor | None:
    """Return a tensor, a NumPy array or a list of whole numbers as a tensor; None for anything else.

    Examples
    --------
    >>> as_labels([2, 0]), as_labels(["cat", "dog"])
    (tensor([2, 0]), None)
    """
    if isinstance(item, np.ndarray) and item.dtype.kind in "iufb":
        item = torch.from_numpy(np.array(item, dtype=np.int64 if item.dtype.kind in "iu" else item.dtype))
    elif isinstance(item, (list, tuple)) and item and all(_is_whole(number) for number in item):
        item = torch.tensor([int(number) for number in item])
    return item if isinstance(item, Tensor) and item.ndim > 0 else None


def flat(labels: Tensor) -> Tensor:
    """Return labels in a column as a row; all others as they are.

    Examples
    --------
    >>> flat(torch.tensor([[1], [0]]))
    tensor([1, 0])
    """
    return labels[:, 0] if labels.ndim == 2 and labels.shape[1] == 1 else labels


def _is_whole(number: Any) -> bool:
    if isinstance(number, Tensor):
        return number.ndim == 0 and _is_integral(number)
    return isinstance(number, (int, np.integer)) and not isinstance(number, bool)


def _is_integral(item: Tensor) -> bool:
    return not (item.is_floating_point() or item.is_complex() or item.dtype == torch.bool)


def _numbers_samples(item: Tensor, classes: int) -> bool:
    counts_up = len(item) >= SURELY_COUNTED and bool((item.diff() == 1).all())
    # Labels that are not to count are one number beyond the classes, as 255 is.
    beyond = item[item >= classes]
    return counts_up or (2 * len(beyond) > len(item) and bool((beyond != beyond[0]).any()))


def _is_row(item: Tensor) -> bool:
    return item.ndim == 1


def _is_row_of_integers(item: Tensor) -> bool:
    return item.ndim == 1 and _is_integral(item)


def _is_column_or_one_hot(item: Tensor) -> bool:
    if item.ndim != 2:
        return False
    if item.shape[1] == 1:
        return _is_integral(item)
    return bool(((item == 0) | (item == 1)).all()) and bool((item.sum(dim=1) == 1).all())


def _is_soft(item: Tensor) -> bool:
    if item.ndim != 2 or item.shape[1] < 2 or not item.is_floating_point():
        return False
    return bool((item >= 0).all()) and bool(((item.sum(dim=1) - 1).abs() < 1e-3).all())
