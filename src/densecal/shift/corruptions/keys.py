"""Keys of samples: 64 bits that stand for (whatever, ..., index)."""

from __future__ import annotations

import hashlib

import numpy as np


def sample_keys(index: np.ndarray, *context: int | str) -> np.ndarray:
    """Return one 64-bit key for each sample index, mixed with everything in `context`.

    Examples
    --------
    >>> import numpy as np
    >>> sample_keys(np.array([7, 8]), 0, "fog", 3)[0] == sample_keys(np.array([7]), 0, "fog", 3)[0]
    np.True_
    """
    text = "\x1f".join(str(part) for part in context).encode()
    start = np.uint64(int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little"))
    with np.errstate(over="ignore"):
        z = start + index.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(z ^ (z >> np.uint64(31)))
