"""Read .npz files and folders of .npy files, and explain how to convert other formats."""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from densecal.errors import ArtefactError
from densecal.io.atomic_files import check_not_a_folder, listed, open_file
from densecal.io.safetensors_file import parse_json
from densecal.io.tables import TABLE_SUFFIXES

METADATA = "metadata"
READABLE = (
    "densecal reads .safetensors and .npz files and folders of .npy files, with arrays named logits, labels and "
    "features/LAYER, and .csv, .tsv and .parquet files with columns logit0, logit1, ... and label"
)
_BY_NAME = "python -c \"import numpy as np; {}np.savez('{}.npz', logits={}, labels={})\""
_CONVERSIONS = {
    ".npy": ("", "np.load('{}')", "np.load('labels.npy')"),
    ".pt": ("import torch; d = torch.load('{}', weights_only=True); ", "d['logits'].numpy()", "d['labels'].numpy()"),
}
_CONVERSIONS[".pth"] = _CONVERSIONS[".pt"]
_PICKLES = (".pkl", ".pickle", ".joblib")
_NOT_WRITTEN = (*_CONVERSIONS, *_PICKLES, *TABLE_SUFFIXES, ".txt", ".json", ".xlsx", ".h5", ".hdf5", ".mat")
SMALL_BYTES, MOST_COMPRESSION = 1 << 28, 50
"""The arrays of an .npz file may take this many bytes, or this many times the size of the file if that is more."""
MOST_MEMBER_HEADER = 80
"""The bytes of a member's header in a zip archive, without its name: 30, and a few fields for large files."""
OBJECTS = object()
"""Stands for an array of Python objects, which is not read: pickles can execute arbitrary code."""


def check_writable(path: str | Path) -> Path:
    """Return the path; raise if its suffix belongs to a format that is not written."""
    path = Path(path)
    if path.suffix.lower() in _NOT_WRITTEN:
        raise ValueError(
            f"Outputs are written as .safetensors or .npz, got {path.name!r}. Use {path.stem}.safetensors instead."
        )
    return check_not_a_folder(path)


def advise(path: Path, suffix: str) -> str:
    """Return a message with the supported formats and how to convert the file."""
    text = f"{path} cannot be read as outputs. {READABLE}."
    if suffix in _CONVERSIONS:
        before, logits, labels = (part.replace("{}", str(path)) for part in _CONVERSIONS[suffix])
        return f"{text} Convert it: {_BY_NAME.format(before, path.with_suffix(''), logits, labels)}"
    if suffix in _PICKLES:
        return (
            f"{text} A pickle can execute arbitrary code, so densecal does not read it. Write the arrays with "
            f"numpy.savez('{path.stem}.npz', logits=..., labels=...) instead."
        )
    return f"{text} From Python: densecal.Outputs(logits, labels).save('{path.stem}.safetensors')."


def read_npz(path: Path, file: BinaryIO, max_bytes: int | None) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return the arrays of an .npz file by name, and its metadata; None if densecal did not write it."""
    try:
        with zipfile.ZipFile(file) as archive:
            members = _check_members(path, archive, os.fstat(file.fileno()).st_size, max_bytes)
            arrays: dict[str, Any] = {}
            for name, member in members.items():
                with archive.open(member) as opened:
                    arrays[name] = _read_member(opened, member.file_size)
    except ArtefactError:
        raise
    # NumPy suggests unpickling what it cannot read, and zipfile raises its own error.
    except Exception:
        raise ArtefactError(f"{path} is not a valid .npz file: it is damaged or not an .npz. {READABLE}.") from None
    metadata = arrays.get(METADATA)
    # `write` stores one JSON string. An array of the same name from another program is left alone.
    if not isinstance(metadata, np.ndarray) or metadata.ndim or metadata.dtype.kind != "U":
        return arrays, None
    del arrays[METADATA]
    return arrays, parse_json(path, str(metadata))


def _check_members(
    path: Path, archive: zipfile.ZipFile, file_bytes: int, max_bytes: int | None
) -> dict[str, zipfile.ZipInfo]:
    """Return the arrays of an archive by name; raise if it lists too few or the arrays are too large."""
    members = archive.infolist()
    by_name = {member.filename.removesuffix(".npy"): member for member in members}
    are_arrays = all(member.filename.endswith(".npy") for member in members)
    # The archive starts each member with its signature, and lists them at the end: a damaged list may lack some.
    if not are_arrays or len(by_name) < len(members) or not _fills(archive, members):
        raise ArtefactError(f"{path} is damaged or not an .npz file: it lists the members {listed([*by_name])}.")
    total = sum(member.file_size for member in members)
    most = max(SMALL_BYTES, MOST_COMPRESSION * file_bytes) if max_bytes is None else max_bytes
    if total > most:
        raise ArtefactError(
            f"{path} has {file_bytes:,} bytes, but its arrays need {total:,}, which is more than {most:,}. If you "
            f"trust the file: densecal.Outputs.load(path, max_bytes={total})."
        )
    return by_name


def _fills(archive: zipfile.ZipFile, members: Sequence[zipfile.ZipInfo]) -> bool:
    """Return whether the members and their headers fill the archive up to its directory."""
    starts = sorted(member.header_offset for member in members)
    gaps = zip(starts, [*starts[1:], archive.start_dir], strict=True)
    sizes = {member.header_offset: member.compress_size + len(os.fsencode(member.filename)) for member in members}
    return starts[:1] == [0] and all(0 <= end - start - sizes[start] <= MOST_MEMBER_HEADER for start, end in gaps)


def _read_member(opened: Any, size: int) -> Any:
    """Return an array of an archive, or OBJECTS; raise if its header promises another size than it has."""
    version = np.lib.format.read_magic(opened)
    reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = reader(opened)
    if dtype.hasobject:
        return OBJECTS
    if opened.tell() + dtype.itemsize * math.prod(shape) != size:
        raise ValueError("an array has another size than its header says")
    opened.seek(0)
    return np.lib.format.read_array(opened, allow_pickle=False)


def read_folder(path: Path) -> dict[str, Any]:
    """Return the arrays of the .npy files of a folder, memory-mapped, by name, or OBJECTS."""
    arrays: dict[str, Any] = {}
    for file in sorted(path.rglob("*.npy")):
        try:
            open_file(file).close()
            name = file.relative_to(path).with_suffix("").as_posix()
            arrays[name] = np.load(file, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            if "Python objects in dtype" in str(error):
                arrays[name] = OBJECTS
                continue
            raise ArtefactError(f"{file} is not a valid .npy file of numbers.") from None
    return arrays
