"""Reader of the official CIFAR batch files, which are Python 2 pickles, that executes no code from them.

Unpickling calls any function that the file names. Here only the names below are allowed, and each is replaced by a
stub that only records its arguments. Any other name is rejected.
"""

from __future__ import annotations

import io
import math
import pickle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from densecal.shift.datasets.checks import DatasetError


class _RecordedDtype:
    """Stub of ``numpy.dtype`` that records the type code."""

    def __init__(self, code: bytes | str, *_: object) -> None:
        self.code = code.decode("latin1") if isinstance(code, bytes) else code

    def __setstate__(self, state: object) -> None:
        """Ignore byte order and alignment: one-byte integers have none."""


class _RecordedArray:
    """Stub of a NumPy array that records shape, dtype, order and bytes until they are checked."""

    state: tuple[Any, ...] = ()

    def __init__(self, *_: object) -> None:
        """Accept the arguments of ``_reconstruct(ndarray, (0,), b"b")``."""

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.state = state

    def pixels(self) -> NDArray[np.uint8]:
        """Return the array after checking that it is a plain uint8 matrix."""
        _, shape, dtype, fortran_order, raw = self.state
        if not isinstance(dtype, _RecordedDtype) or dtype.code != "u1" or not isinstance(raw, bytes):
            raise ValueError("its data are not unsigned bytes")
        if len(raw) != math.prod(shape):
            raise ValueError(f"its data have {len(raw)} bytes, but the shape {shape} needs {math.prod(shape)}")
        return np.frombuffer(raw, np.uint8).reshape(shape, order="F" if fortran_order else "C")


def _latin1_bytes(text: str, codec: str) -> bytes:
    """Replace ``_codecs.encode``, which Python 3 uses for bytes in old protocols."""
    if codec != "latin1":
        raise pickle.UnpicklingError(f"its codec must be 'latin1', got {codec!r}")
    return text.encode("latin1")


_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _RecordedArray,
    ("numpy._core.multiarray", "_reconstruct"): _RecordedArray,
    ("numpy", "ndarray"): None,
    ("numpy", "dtype"): _RecordedDtype,
    ("_codecs", "encode"): _latin1_bytes,
}


class _CIFARUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"it refers to {module}.{name}, which is not allowed and was not executed")
        return _ALLOWED[module, name]


def read_batch(path: Path, label_key: bytes, rows: int) -> tuple[NDArray[np.uint8], list[int]]:
    """Return the images (rows, 32, 32, 3) and labels of one official batch file."""
    try:
        content = _CIFARUnpickler(io.BytesIO(path.read_bytes()), encoding="bytes").load()
        data, labels = content[b"data"], content[label_key]
        if not isinstance(data, _RecordedArray) or not isinstance(labels, list):
            raise ValueError("its data are not an array, or its labels not a list")
        pixels = data.pixels()
        if pixels.shape != (rows, 3072) or len(labels) != rows:
            raise ValueError(f"expected {rows} rows of 3072 and {rows} labels, got {pixels.shape} and {len(labels)}")
    except MemoryError:
        raise
    except Exception as error:  # a damaged pickle can raise anything
        reason = f"no key {error}" if isinstance(error, KeyError) else str(error) or type(error).__name__
        raise DatasetError(
            f"{path} is not the official batch file, or is damaged: {reason}. Unpack the official archive again."
        ) from error
    return np.ascontiguousarray(pixels.reshape(rows, 3, 32, 32).transpose(0, 2, 3, 1)), labels
