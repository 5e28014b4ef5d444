"""Which item of a loader's batch holds the labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

ADVICE = "Give (inputs, labels), ((input, input), labels), or a dict with 'labels' among its keys."

SURELY_RISING = 16
"""So many rising numbers are those of samples; fewer may be the labels of a set in the order of its classes."""
ENOUGH_SEEN = 1000


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


class Doubt:
    """Whether another item of a loader's batches could be the labels, beside the first that could and is taken.

    It could not where it numbers the samples: it keeps rising, or most of its numbers are several that are no classes.
    One batch may be too small to show this, so that all are looked at together.

    Examples
    --------
    >>> doubt = Doubt()
    >>> doubt.see({1: torch.tensor([2, 0, 1, 1]), 2: torch.tensor([8, 2, 7, 4])}, classes=3)
    >>> doubt.settle()
    >>> doubt.see({1: torch.tensor([2, 0]), 3: torch.tensor([1, 0])}, classes=3)
    >>> doubt.settle()
    Traceback (most recent call last):
    ValueError: The items 1 and 3 of a batch could both be its labels. Give (inputs, labels), ...
    """

    def __init__(self) -> None:
        self._classes: int | None = None
        self._taken = 0
        self._cleared: set[int] = set()
        self._seen: dict[int, Tensor] = {}

    def see(self, candidates: Mapping[int, Tensor], classes: int | None = None) -> None:
        """Look at the items of a batch that may be its labels; refuse them as soon as enough were seen."""
        self._classes = classes or self._classes
        self._taken, *later = candidates or (0,)
        for place in later:
            if place in self._cleared:
                continue
            before = [self._seen[place]] if place in self._seen else []
            self._seen[place] = torch.cat([*before, candidates[place].long().cpu()])
            if _numbers_samples(self._seen[place], self._classes):
                self._cleared.add(place)
                del self._seen[place]
            elif self._classes is not None and len(self._seen[place]) >= ENOUGH_SEEN:
                self.settle()

    def settle(self) -> None:
        """Refuse what is still in doubt."""
        if self._seen:
            named = " and ".join(map(str, [self._taken, *self._seen]))
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


def _numbers_samples(item: Tensor, classes: int | None) -> bool:
    if item.ndim != 1:
        return False
    if len(item) >= SURELY_RISING and bool((item.diff() > 0).all()):
        return True
    # Labels that are not to count are one or two numbers outside the classes, such as -1 and 255.
    outside = item[(item < 0) | (item >= classes)] if classes else item[:0]
    return 2 * len(outside) > len(item) and len(set(outside.tolist())) > 2


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
