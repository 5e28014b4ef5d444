"""What several methods do to rows: centre, order and cut them, notice a missing label."""

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
    """Subtract each row's mean, so that a constant added to a row changes nothing.

    The classifiers' own training leaves rows with a mean near zero, so a method defined on raw logits sees nearly
    the same numbers.
    """
    xp = namespace(logits)
    # The maximum goes first: a large common constant must not eat the digits of the mean.
    shifted = logits - xp.max(logits, axis=1, keepdims=True)
    return shifted - xp.mean(shifted, axis=1, keepdims=True)


def logit_blocks(logits: Array) -> Iterator[slice]:
    """Cut the rows of logits into blocks whose temporaries stay small."""
    block_bytes = TORCH_BLOCK_BYTES if is_torch(logits) else NUMPY_BLOCK_BYTES
    return row_blocks(logits.shape[0], logits.shape[1] * 8, block_bytes)


def by_row_blocks(apply: Callable[[Array], Array], logits: Array) -> Array:
    """Apply a row-wise map block by block, so that its temporaries stay small."""
    if is_torch(logits) and not isinstance(logits.shape[0], int):  # a symbolic size, while the map is being exported
        return apply(logits)
    blocks = list(logit_blocks(logits))
    if len(blocks) <= 1:
        return apply(logits)
    return namespace(logits).concat([apply(logits[block]) for block in blocks], axis=0)


def for_fit(logits: Array, labels: Array) -> tuple[Array, Array]:
    """Return the samples as the fit reads them: on the CPU as NumPy arrays, on a GPU where they are, in a set order.

    The order depends on the samples alone, never on how they were stored, so that a shuffled validation
    set gives the same folds, the same sums and so the same calibrator. Samples of one class stand together.
    """
    if is_torch(logits) and _lies_on_cpu(logits):
        logits, labels = to_numpy(logits), to_numpy(labels)
    xp = namespace(logits)
    shifted = logits - xp.max(logits, axis=1, keepdims=True)
    # Sums with unequal weights tell apart rows that hold the same numbers in another order.
    weights = xp.linspace(1, 2, logits.shape[1], dtype=logits.dtype, **_device(logits))
    keys = [xp.sum(shifted * weights, axis=1), xp.sum(shifted, axis=1), take_label(shifted, labels), labels]
    order = np.lexsort([to_numpy(key) for key in keys])
    index = xp.asarray(order, **_device(logits))
    return logits[index], labels[index]


def warn_of_missing_classes(labels: Array, classes: int, consequence: str) -> None:
    """Warn when a class-wise method is fitted on labels that lack a class."""
    missing = np.flatnonzero(np.bincount(to_numpy(labels), minlength=classes) == 0)
    if missing.size:
        shown = ", ".join(str(label) for label in missing[:8]) + (", ..." if missing.size > 8 else "")
        warnings.warn(
            f"{missing.size} of {classes} classes never occur in the validation labels ({shown}); they "
            f"{consequence}. A validation set with every class in it, or an accuracy-preserving method, avoids this.",
            CalibrationWarning,
            stacklevel=5,
        )


def _lies_on_cpu(tensor: Array) -> bool:
    return bool(tensor.device.type == "cpu")


def _device(array: Array) -> dict[str, Any]:
    return {"device": array.device} if is_torch(array) else {}
