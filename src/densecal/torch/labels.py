"""Which item of a loader's batch holds the labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

ADVICE = "Give (inputs, labels), ((input, input), labels), or a dict with 'labels' among its keys."


def find_labels(items: Sequence[Any], samples: int) -> tuple[int, Tensor] | None:
    """Return where the labels are among the items that follow a batch's first, and the labels; None without any.

    One integer a sample comes first; then integers in a column and one-hot rows; then one number of any kind, which
    the check of the labels will speak about. Two items of a kind cannot be told apart, and are an error.

    Examples
    --------
    >>> find_labels([torch.zeros(2, 5), [1, 0]], samples=2)
    (1, tensor([1, 0]))
    """
    found = {position: as_labels(item) for position, item in enumerate(items)}
    tensors = {position: item for position, item in found.items() if item is not None and len(item) == samples}
    kinds: tuple[Callable[[Tensor], bool], ...] = (_is_row_of_integers, _is_column_or_one_hot, _is_row)
    for is_of_kind in kinds:
        positions = [position for position, item in tensors.items() if is_of_kind(item)]
        if len(positions) > 1:
            named = " and ".join(str(position + 1) for position in positions)
            raise ValueError(f"The items {named} of a batch could both be its labels. {ADVICE}")
        if positions:
            return positions[0], flat(tensors[positions[0]])
    last = tensors.get(len(items) - 1)
    if last is not None and _is_soft(last):
        raise ValueError(
            f"Item {len(items)} of a batch looks like soft labels: rows that sum to 1, of shape {tuple(last.shape)}. A "
            "calibration needs the true class of each sample; labels.argmax(dim=1) takes the likeliest."
        )
    return None


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
