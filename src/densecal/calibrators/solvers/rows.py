"""Row operations shared by several methods: centring, ordering, blocks and the check for missing classes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from densecal.arrays import Array, is_torch, namespace, row_blocks, to_numpy
from densecal.calibrators.solvers.tempering import take_label
from densecal.errors import CalibrationWarning

NUMPY_BLOCK_BYTES = 1 << 20
TORCH_BLOCK_BYTES = 1 << 28


def centre_rows(logits: Array) -> Array:
    """Subtract the mean of each row, so that the result does not depend on a constant added to a row.

    Trained classifiers have logits with row means near zero, so methods defined on raw logits get nearly the same
    values.
    """
    xp = namespace(logits)
    # Subtract the maximum first: a large common constant would make the mean inaccurate.
    shifted = logits - xp.max(logits, axis=1, keepdims=True)
    return shifted - xp.mean(shifted, axis=1, keepdims=True)


def logit_blocks(logits: Array) -> Iterator[slice]:
    """Yield slices that split the logits into blocks with small temporary arrays."""
    block_bytes = TORCH_BLOCK_BYTES if is_torch(logits) else NUMPY_BLOCK_BYTES
    return row_blocks(logits.shape[0], logits.shape[1] * 8, block_bytes)


def by_row_blocks(apply: Callable[[Array], Array], logits: Array) -> Array:
    """Apply a row-wise map block by block, to limit the size of temporary arrays."""
    if is_torch(logits) and not isinstance(logits.shape[0], int):  # the size is symbolic during an export
        return apply(logits)
    blocks = list(logit_blocks(logits))
    if len(blocks) <= 1:
        return apply(logits)
    return namespace(logits).concat([apply(logits[block]) for block in blocks], axis=0)


def for_fit(logits: Array, labels: Array, *more: Array) -> tuple[Array, ...]:
    """Return the samples, and more arrays of one row per sample, in a canonical order.

    They are NumPy arrays, or tensors if the logits are on a GPU.

    The order depends only on the samples, so that a shuffled validation set gives the same folds, the same sums and
    therefore the same calibrator. Samples of one class are adjacent.
    """
    if is_torch(logits) and _lies_on_cpu(logits):
        logits, labels = to_numpy(logits), to_numpy(labels)
    xp = namespace(logits)
    shifted = logits - xp.max(logits, axis=1, keepdims=True)
    # Sums with unequal weights distinguish rows with the same numbers in a different order.
    weights = xp.linspace(1, 2, logits.shape[1], dtype=logits.dtype, **_device(logits))
    keys = [xp.sum(shifted * weights, axis=1), xp.sum(shifted, axis=1), take_label(shifted, labels), labels]
    order = np.lexsort([to_numpy(key) for key in keys])
    index = xp.asarray(order, **_device(logits))
    return logits[index], labels[index], *(array[order] for array in more)


def warn_of_missing_classes(labels: Array, classes: int, consequence: str) -> None:
    """Warn if a class is missing from the labels of a class-wise method."""
    missing = np.flatnonzero(np.bincount(to_numpy(labels), minlength=classes) == 0)
    if missing.size:
        shown = ", ".join(str(label) for label in missing[:8]) + (", ..." if missing.size > 8 else "")
        warnings.warn(
            f"{missing.size} of {classes} classes are missing from the validation labels ({shown}); they "
            f"{consequence}. Use a validation set with all classes, or an accuracy-preserving method.",
            CalibrationWarning,
            stacklevel=5,
        )


def _lies_on_cpu(tensor: Array) -> bool:
    return bool(tensor.device.type == "cpu")


def _device(array: Array) -> dict[str, Any]:
    return {"device": array.device} if is_torch(array) else {}
