"""Atomic writes, and safetensors files with a JSON header. Arrays are memory-mapped; no code is executed."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from densecal.errors import ArtefactError

HEADER_KEY = "densecal"
_DTYPES = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "I64": np.int64,
    "I32": np.int32,
    "I16": np.int16,
    "I8": np.int8,
    "U8": np.uint8,
    "BOOL": np.bool_,
}


@contextmanager
def atomic_write(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path in the folder of ``path``; rename it to ``path`` on success, remove it on failure."""
    path = check_not_a_folder(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".partial")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def check_not_a_folder(path: str | Path) -> Path:
    """Return the path; raise if it is a folder."""
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder. Pass the path of a file.")
    return path


def check_output_file(path: str | Path) -> Path:
    """Return the path of a file to write; raise if it is a folder or its folder does not exist."""
    path = check_not_a_folder(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"{path} cannot be written: the folder {path.parent} does not exist. Check the path, or make the folder."
        )
    return path


def write(path: str | Path, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    """Write arrays and a JSON header to one safetensors file."""
    from safetensors.numpy import save_file

    contiguous = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
    with atomic_write(path) as temporary:
        save_file(contiguous, temporary, metadata={HEADER_KEY: json.dumps(header)})


def read(path: str | Path, expected_format: str | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the JSON header (empty if densecal did not write the file) and the memory-mapped arrays."""
    header, offsets, start = _read_header(Path(path))
    if expected_format is not None:
        check_format(path, header, expected_format)
    arrays = {}
    for name, entry in offsets.items():
        dtype = _DTYPES.get(entry["dtype"])
        if dtype is None:
            raise ArtefactError(f"{path}: array {name!r} has the unsupported dtype {entry['dtype']!r}.")
        shape, (begin, end) = tuple(entry["shape"]), entry["data_offsets"]
        if end - begin == 0:
            arrays[name] = np.empty(shape, dtype)
            continue
        arrays[name] = np.memmap(path, dtype=dtype, mode="r", offset=start + begin, shape=shape)
    return header, arrays


def read_header(path: str | Path) -> dict[str, Any]:
    """Return the JSON header, or an empty one if densecal did not write the file."""
    try:
        return _read_header(Path(path))[0]
    except (ArtefactError, OSError):
        return {}


def check_format(path: str | Path, header: Mapping[str, Any], expected: str) -> None:
    """Raise if the header names another format."""
    if not header:
        raise ArtefactError(f"{path} is a safetensors file that was not written by densecal.")
    if header.get("format") != expected:
        raise ArtefactError(
            f"{path} holds {header.get('format')!r}, not {expected!r}. `densecal inspect {path}` shows its content."
        )


def _read_header(path: Path) -> tuple[dict[str, Any], dict[str, Any], int]:
    """Return densecal's header, the entries of the arrays and the offset of their data."""
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist.")
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > size - 8:
            raise ArtefactError(f"{path} is truncated or not a safetensors file ({size} bytes).")
        try:
            entries = json.loads(file.read(length))
            header = json.loads(entries.pop("__metadata__", {}).get(HEADER_KEY, "{}"))
            end = max((entry["data_offsets"][1] for entry in entries.values()), default=0)
        except (ValueError, KeyError, AttributeError, TypeError) as error:
            raise ArtefactError(f"{path} was not written by densecal: its header cannot be parsed.") from error
    start = 8 + length
    if size < start + end:
        raise ArtefactError(f"{path} is truncated: {size} bytes, but its header requires {start + end}.")
    return header, entries, start
