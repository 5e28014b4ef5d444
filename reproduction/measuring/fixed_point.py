"""Compress logits and distances: fixed point, differences, LZMA.

A million inputs have forty numbers each (ten logits, five distances in each of six layers). The fixed step is fine
enough for calibration, and the close distances to the 1st, 10th, ... 200th neighbour compress well as differences.
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
    """Pack an array of shape (n_samples, ...) into bytes; each number is rounded to a multiple of ``step``.

    Arrays with three axes are stored as differences along the last axis.
    """
    whole = np.rint(np.asarray(values, np.float64) / step)
    if not np.isfinite(whole).all() or np.abs(whole).max(initial=0) > np.iinfo(np.int16).max // 2:
        raise ValueError(f"values must be finite and below {2**14 * step:g} in magnitude for a step of {step:g}.")
    steps = whole.astype(np.int16)
    if steps.ndim == 3:
        steps = np.diff(steps, axis=2, prepend=np.int16(0))
    # Store columns one after the other, with low and high bytes separated, because only the high bytes repeat.
    columns = np.ascontiguousarray(np.moveaxis(steps, 0, -1)).view(np.uint8).reshape(-1, 2)
    return np.frombuffer(lzma.compress(np.ascontiguousarray(columns.T).tobytes(), preset=6), np.uint8)


def unpack(packed: Bytes, shape: tuple[int, ...], step: float) -> NDArray[np.float32]:
    """Return the array packed by `pack`."""
    halves = np.frombuffer(lzma.decompress(np.asarray(packed).tobytes()), np.uint8).reshape(2, -1)
    columns = np.ascontiguousarray(halves.T).view(np.int16).reshape(*shape[1:], shape[0])
    steps = np.moveaxis(columns, -1, 0)
    if len(shape) == 3:
        steps = np.cumsum(steps, axis=2, dtype=np.int16)
    return np.ascontiguousarray(steps, dtype=np.float32) * np.float32(step)
