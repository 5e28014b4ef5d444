"""Store many similar numbers in few bytes: fixed point, differences, LZMA.

A million inputs have forty numbers each (ten logits, five distances in each of six layers). A fixed step keeps what a
calibrator can use; the rest compresses well because the distances to the 1st, 10th, ... 200th neighbour are close.
"""

from __future__ import annotations

import lzma
from typing import Any

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
LOGIT_STEP = 2.0**-7
DISTANCE_STEP = 2.0**-10


def pack(values: Any, step: float) -> Bytes:
    """Pack an array of shape (samples, ...) into bytes; each number is rounded to a multiple of ``step``.

    Numbers along the last of three axes are stored as differences from the one before.
    """
    whole = np.rint(np.asarray(values, np.float64) / step)
    if not np.isfinite(whole).all() or np.abs(whole).max(initial=0) > np.iinfo(np.int16).max // 2:
        raise ValueError(f"values must be finite and below {2**14 * step:g} in size to be stored in steps of {step:g}.")
    steps = whole.astype(np.int16)
    if steps.ndim == 3:
        steps = np.diff(steps, axis=2, prepend=np.int16(0))
    # Column by column, low and high bytes apart, because only the high ones repeat.
    columns = np.ascontiguousarray(np.moveaxis(steps, 0, -1)).view(np.uint8).reshape(-1, 2)
    return np.frombuffer(lzma.compress(np.ascontiguousarray(columns.T).tobytes(), preset=6), np.uint8)


def unpack(packed: Bytes, shape: tuple[int, ...], step: float) -> NDArray[np.float32]:
    """Return the array that `pack` packed."""
    halves = np.frombuffer(lzma.decompress(np.asarray(packed).tobytes()), np.uint8).reshape(2, -1)
    columns = np.ascontiguousarray(halves.T).view(np.int16).reshape(*shape[1:], shape[0])
    steps = np.moveaxis(columns, -1, 0)
    if len(shape) == 3:
        steps = np.cumsum(steps, axis=2, dtype=np.int16)
    return np.ascontiguousarray(steps, dtype=np.float32) * np.float32(step)
