"""Safetensors files with a JSON header and a checksum. No code is executed, and no size in a header is trusted.

The checksum is the SHA-256 of the whole file with zeros in place of the checksum itself.
"""

from __future__ import annotations

import hashlib
import json
import math
import mmap
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from densecal.errors import ArtefactError
from densecal.io.atomic_files import atomic_write, open_file

HEADER_KEY, CHECKSUM_KEY = "densecal", "sha256"
MOST_HEADER_BYTES = 100_000_000
"""The limit of the safetensors format."""
_NO_CHECKSUM = "0" * 64
_DTYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "I64": "<i8",
    "I32": "<i4",
    "I16": "<i2",
    "I8": "|i1",
    "U8": "|u1",
    "BOOL": "|b1",
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}


@dataclass(frozen=True)
class Entry:
    """One array to write: its dtype, its shape and its bytes in pieces."""

    dtype: np.dtype[Any]
    shape: Sequence[int]
    pieces: Iterable[Any]

    @property
    def size(self) -> int:
        """Size in bytes."""
        return self.dtype.itemsize * math.prod(self.shape)


def write(path: str | Path, header: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    """Write arrays and a JSON header to one file."""
    write_entries(path, header, {name: _as_entry(name, array) for name, array in arrays.items()})


def write_entries(path: str | Path, header: Mapping[str, Any], entries: Mapping[str, Entry]) -> None:
    """Write arrays that may be larger than memory, and a JSON header, to one file."""
    # Wider dtypes first, so that each array starts at a multiple of its item size.
    order = sorted(entries, key=lambda name: -entries[name].dtype.itemsize)
    described: dict[str, Any] = {"__metadata__": {CHECKSUM_KEY: _NO_CHECKSUM, HEADER_KEY: json.dumps(header)}}
    offset = 0
    for name in order:
        entry = entries[name]
        end = offset + entry.size
        dtype = _NAMES[entry.dtype.str]
        described[name] = {"dtype": dtype, "shape": list(entry.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(described).encode()
    text += b" " * (-len(text) % 8)
    start = len(text).to_bytes(8, "little") + text
    with atomic_write(path) as temporary, temporary.open("r+b") as file:
        digest = hashlib.sha256(start)
        file.write(start)
        for name in order:
            for piece in entries[name].pieces:
                digest.update(piece)
                file.write(piece)
        file.seek(start.index(_NO_CHECKSUM.encode()))
        file.write(digest.hexdigest().encode())


def _as_entry(name: str, array: Any) -> Entry:
    array = np.asarray(array)
    dtype = np.dtype(np.float64) if array.dtype == np.longdouble else array.dtype.newbyteorder("<")
    if dtype.str not in _NAMES:
        raise TypeError(f"The array {name!r} has dtype {array.dtype}, which cannot be saved. Convert it to float32.")
    values = np.ascontiguousarray(array, dtype)
    return Entry(dtype, array.shape, [values.reshape(-1).view(np.uint8)])


def read(
    path: str | Path,
    expected_format: str | None = None,
    *,
    mapped: bool = True,
    checksum: bool = True,
    verify: bool = True,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the JSON header (empty if densecal did not write the file) and the arrays.

    One descriptor is opened, so if another process replaces the file meanwhile, only the old content is read.
    ``mapped`` arrays are read from disk when they are used, others at once. A wrong checksum is an error, and so is a
    missing one unless ``checksum`` is False or another program wrote the file. Without ``verify`` the checksum is not
    computed, so that data are read only when they are used.
    """
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size < 8:
            raise _truncated(path, size)
        content: Any = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if mapped else file.read()
    content = memoryview(content)
    entries, metadata, start = _parse(path, content)
    header = _header_of(path, metadata)
    if expected_format is not None:
        check_format(path, header, expected_format)
    if verify:
        _verify(path, content, start, metadata.get(CHECKSUM_KEY), required=checksum and bool(header))
    return header, {name: _array(path, name, entry, content[start:]) for name, entry in entries.items()}


def read_header(path: str | Path) -> dict[str, Any]:
    """Return the JSON header, or an empty one if densecal did not write the file."""
    try:
        with open_file(path) as file:
            return _header_of(path, _parse(path, _start_of(file), whole=False)[1])
    except (ArtefactError, OSError):
        return {}


def read_checksum(path: str | Path) -> str | None:
    """Return the checksum stored in the file, without computing it, or None if there is none."""
    with open_file(path) as file:
        return _parse(path, _start_of(file), whole=False)[1].get(CHECKSUM_KEY)


def check_format(path: str | Path, header: Mapping[str, Any], expected: str) -> None:
    """Raise if the header names another format."""
    if not header:
        raise ArtefactError(f"{path} is a safetensors file that was not written by densecal.")
    if header.get("format") != expected:
        raise ArtefactError(
            f"{path} holds {header.get('format')!r}, not {expected!r}. `densecal inspect {path}` shows its content."
        )


def parse_json(path: str | Path, text: bytes | str) -> dict[str, Any]:
    """Return a JSON object; raise if it is not an object, is nested too deeply or has a key twice."""
    try:
        found = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise ArtefactError(f"{path} is damaged: it has no valid JSON ({type(error).__name__})") from None
    if not isinstance(found, dict):
        raise ArtefactError(f"{path} is damaged: its JSON is not an object")
    return found


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key occurs twice")
    return found


def _start_of(file: BinaryIO) -> memoryview:
    """Return the length and the text of the header."""
    length = file.read(8)
    return memoryview(length + file.read(min(int.from_bytes(length, "little"), MOST_HEADER_BYTES)))


def _truncated(path: str | Path, size: int) -> ArtefactError:
    return ArtefactError(f"{path} is truncated or not a safetensors file ({size} bytes).")


def _parse(path: str | Path, content: memoryview, *, whole: bool = True) -> tuple[dict[str, Any], dict[str, Any], int]:
    """Return the entries of the arrays, the metadata and the offset of the data, after checking them all."""
    length = int.from_bytes(content[:8], "little")
    if length > min(len(content) - 8, MOST_HEADER_BYTES):
        raise _truncated(path, len(content))
    start = 8 + length
    entries = parse_json(path, bytes(content[8:start]))
    metadata = entries.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ArtefactError(f"{path} is damaged: __metadata__ must map names to strings.")
    if whole:
        _check_entries(path, entries, len(content) - start)
    return entries, metadata, start


def _check_entries(path: str | Path, entries: Mapping[str, Any], available: int) -> None:
    """Raise unless the arrays fill the data exactly: without gaps, overlaps or sizes that differ from their shapes."""
    for name, entry in entries.items():
        if not _is_entry(entry):
            raise ArtefactError(f"{path} is damaged: the array {name!r} has no valid dtype, shape and data_offsets.")
        if entry["dtype"] not in _DTYPES:
            raise ArtefactError(f"{path}: the array {name!r} has the unsupported dtype {entry['dtype']!r}.")
        begin, end = entry["data_offsets"]
        size = np.dtype(_DTYPES[entry["dtype"]]).itemsize * math.prod(entry["shape"])
        if end - begin != size:
            raise ArtefactError(f"{path} is damaged: the array {name!r} needs {size} bytes, but has {end - begin}.")
    last = 0
    for name, entry in sorted(entries.items(), key=lambda pair: cast("list[int]", pair[1]["data_offsets"])):
        if entry["data_offsets"][0] != last:
            raise ArtefactError(f"{path} is damaged: the array {name!r} overlaps another one or follows a gap.")
        last = entry["data_offsets"][1]
    if last != available:
        found = "truncated" if last > available else "damaged"
        raise ArtefactError(f"{path} is {found}: it has {available} bytes of data, but its header requires {last}.")


def _is_entry(entry: Any) -> bool:
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        return False
    shape, offsets = entry["shape"], entry["data_offsets"]
    numbers = [shape, offsets]
    if not isinstance(entry["dtype"], str) or not all(isinstance(one, list) for one in numbers):
        return False
    whole = all(type(number) is int and 0 <= number < 1 << 63 for one in numbers for number in one)
    return whole and len(offsets) == 2 and len(shape) <= 32


def _header_of(path: str | Path, metadata: Mapping[str, str]) -> dict[str, Any]:
    return parse_json(path, metadata[HEADER_KEY]) if HEADER_KEY in metadata else {}


def _verify(path: str | Path, content: memoryview, start: int, checksum: str | None, *, required: bool) -> None:
    if checksum is None:
        if required:
            raise ArtefactError(
                f"{path} has no checksum: it is damaged, or was written by densecal 0.1.0 or older. Write it again."
            )
        return
    head = bytes(content[:start]).replace(checksum.encode(errors="replace"), _NO_CHECKSUM.encode(), 1)
    digest = hashlib.sha256(head)
    digest.update(content[start:])
    if digest.hexdigest() != checksum:
        raise ArtefactError(f"{path} is damaged: its content does not match its checksum. Copy or write it again.")


def _array(path: str | Path, name: str, entry: Mapping[str, Any], data: memoryview) -> Any:
    begin, end = entry["data_offsets"]
    try:
        return np.frombuffer(data[begin:end], _DTYPES[entry["dtype"]]).reshape(entry["shape"])
    except ValueError as error:  # an empty array with an axis that no array can have
        raise ArtefactError(f"{path} is damaged: the array {name!r} has a wrong shape ({error}).") from None
