"""NumPy arrays and torch tensors behind one door: the Python array API, and the few things it lacks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = Any
"""A NumPy array or a torch tensor, on any device."""

BLOCK_BYTES = 1 << 22
"""A block of rows of about this size stays in a core's cache while several passes go over it."""


def is_torch(array: object) -> bool:
    """Whether this is a torch tensor, without importing torch to find out.

    Examples
    --------
    >>> is_torch(np.zeros(3))
    False
    """
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def namespace(*arrays: Array) -> Any:
    """Return the array-API namespace (NumPy's or torch's) that the arrays share.

    Examples
    --------
    >>> namespace(np.zeros(3)).__name__
    'array_api_compat.numpy'
    """
    if not any(is_torch(array) for array in arrays):
        import array_api_compat.numpy as numpy_namespace

        return numpy_namespace
    import array_api_compat.torch as torch_namespace

    return torch_namespace


def as_array(values: object) -> Array:
    """Leave arrays and tensors as they are and turn anything else into a NumPy array.

    Examples
    --------
    >>> as_array([1.0, 2.0])
    array([1., 2.])
    """
    return values.detach() if is_torch(values) else np.asarray(values)  # type: ignore[attr-defined]


def to_numpy(array: Array) -> Any:
    """Copy a tensor to a NumPy array on the CPU; a NumPy array comes back as it is.

    Examples
    --------
    >>> to_numpy([1, 2])
    array([1, 2])
    """
    return array.detach().cpu().numpy() if is_torch(array) else np.asarray(array)


def like(values: Array, template: Array) -> Array:
    """Turn NumPy values into the template's kind, floating type and device.

    Examples
    --------
    >>> like(np.ones(2), np.zeros(3, np.float32)).dtype
    dtype('float32')
    """
    xp = namespace(template)
    if is_torch(template):
        return xp.asarray(values, dtype=template.dtype, device=template.device)
    return np.asarray(values, dtype=template.dtype)


def row_blocks(rows: int, bytes_per_row: int, block_bytes: int = BLOCK_BYTES) -> Iterator[slice]:
    """Cut rows into blocks of about ``block_bytes``.

    Examples
    --------
    >>> list(row_blocks(5, bytes_per_row=10, block_bytes=20))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    step = max(1, block_bytes // max(1, bytes_per_row))
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def softmax(logits: Array) -> Array:
    """Turn each row of logits into probabilities, without overflow.

    Examples
    --------
    >>> softmax(np.array([[1000.0, 1000.0]]))
    array([[0.5, 0.5]])
    """
    xp = namespace(logits)
    if is_torch(logits):
        return logits.softmax(-1)
    shifted = logits - xp.max(logits, axis=-1, keepdims=True)
    np.exp(shifted, out=shifted)
    shifted /= xp.sum(shifted, axis=-1, keepdims=True)
    return shifted
