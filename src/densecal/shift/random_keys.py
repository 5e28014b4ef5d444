"""The 64-bit keys that all random numbers of a sample are derived from."""

from __future__ import annotations

import hashlib

import numpy as np


def sample_keys(index: np.ndarray, *context: int | str) -> np.ndarray:
    """Return one 64-bit key per sample index, mixed with all values in `context`."""
    text = "\x1f".join(str(part) for part in context).encode()
    start = np.uint64(int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little"))
    with np.errstate(over="ignore"):
        z = start + index.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(z ^ (z >> np.uint64(31)))
