"""Functions for NumPy arrays and torch tensors alike: the Python array API and what it lacks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from densecal.arrays.types import Array, ArrayLike, ArrayOrTensor

__all__ = [
    "Array",
    "ArrayLike",
    "ArrayOrTensor",
    "as_array",
    "asarray_like",
    "is_torch",
    "keep_top_class",
    "namespace",
    "row_blocks",
    "softmax",
    "to_device_of",
    "to_numpy",
]

BLOCK_BYTES = 1 << 22
"""A block of rows of this size fits in the cache of a CPU core."""


def is_torch(array: object) -> bool:
    """Return whether the object is a torch tensor, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def namespace(*arrays: Array) -> Any:
    """Return the array-API namespace (NumPy's or torch's) that the arrays share."""
    if not any(is_torch(array) for array in arrays):
        import array_api_compat.numpy as numpy_namespace

        return numpy_namespace
    import array_api_compat.torch as torch_namespace

    return torch_namespace


def as_array(values: object) -> Array:
    """Return arrays and tensors unchanged, anything else as a NumPy array."""
    return values.detach() if is_torch(values) else np.asarray(values)  # type: ignore[attr-defined]


def to_numpy(array: Array) -> Any:
    """Return a tensor as a NumPy array on the CPU, and a NumPy array unchanged."""
    return array.detach().cpu().numpy() if is_torch(array) else np.asarray(array)


def asarray_like(values: Array, template: Array) -> Array:
    """Return the values as an array of the template's library, dtype and device."""
    if is_torch(template):
        return namespace(template).asarray(values, dtype=template.dtype, device=template.device)
    return np.asarray(to_numpy(values), dtype=template.dtype)


def to_device_of(array: Array, other: Array | None) -> Array:
    """Move an array to the library and device of another array; its dtype does not change."""
    if other is None or (is_torch(array) == is_torch(other) and not is_torch(other)):
        return array
    if is_torch(other):
        import torch

        return torch.as_tensor(array, device=other.device)
    return to_numpy(array)


def row_blocks(rows: int, bytes_per_row: int, block_bytes: int = BLOCK_BYTES) -> Iterator[slice]:
    """Yield slices that split the rows into blocks of about ``block_bytes``."""
    step = max(1, block_bytes // max(1, bytes_per_row))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def softmax(logits: Array) -> Array:
    """Return the softmax of each row, computed without overflow."""
    xp = namespace(logits)
    if is_torch(logits):
        return logits.softmax(-1)
    shifted = logits - xp.max(logits, axis=-1, keepdims=True)
    np.exp(shifted, out=shifted)
    shifted /= xp.sum(shifted, axis=-1, keepdims=True)
    return shifted


def keep_top_class(probabilities: Array, logits: Array) -> Array:
    """Raise the top class of the logits by one rounding unit where another class has the same probability.

    A strictly increasing map preserves the order of exact numbers, but two nearly equal probabilities can round to the
    same float. ``argmax`` would then return the first of them. A NumPy array is changed in place.
    """
    xp = namespace(probabilities)
    step = float(xp.finfo(probabilities.dtype).eps)
    if is_torch(probabilities):  # no branch on values: this code is traced and exported
        top = logits.argmax(1, keepdim=True)
        largest, where = probabilities.max(1, keepdim=True)
        # Not largest * (1 + step): ONNX exporters drop a factor this close to one.
        return probabilities.scatter(1, top, xp.where(where == top, largest, xp.add(largest, largest, alpha=step)))
    top = np.argmax(logits, axis=1)
    rows = np.flatnonzero(np.argmax(probabilities, axis=1) != top)
    if rows.size:
        probabilities[rows, top[rows]] = probabilities[rows].max(axis=1) * (1 + step)
    return probabilities
