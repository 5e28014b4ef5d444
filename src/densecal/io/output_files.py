"""Files of outputs: their names, the supported formats, and conversion advice for others."""

from __future__ import annotations

import json
import math
import os
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from glob import has_magic
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from densecal.errors import ArtefactError, listed
from densecal.io import safetensors_file
from densecal.io.file_content import DEFAULT_LAYOUT, FEATURE_PREFIX, FileContent, FileLayout, interpret
from densecal.io.files import atomic_write, check_not_a_folder, open_file
from densecal.io.tables import TABLE_SUFFIXES, read_table

SUFFIXES = (".safetensors", ".npz", *TABLE_SUFFIXES)
FORMAT = "densecal.outputs"
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
_SIGNATURES = {b"PK\x03\x04": ".npz", b"\x93NUMPY": ".npy", b"PAR1": ".parquet", b"\x80": ".pkl"}


def list_outputs(source: str | Path) -> list[Path]:
    """Return the files of a folder or a pattern in natural order, part-2 before part-10; a file is itself."""
    path = Path(source)
    if path.is_dir() and not (path / "logits.npy").exists():
        files = [file for file in path.iterdir() if _is_outputs(file)]
        if not files:
            raise ValueError(
                f"{path} holds no outputs: expected files that end in {', '.join(SUFFIXES)}, or folders with "
                "logits.npy."
            )
    elif has_magic(str(path)) and not path.exists():
        anchor = Path(path.anchor)
        files = [file for file in anchor.glob(str(path.relative_to(anchor))) if _is_outputs(file)] or [path]
    else:
        files = [path]
    return sorted(files, key=natural_order)


def _is_outputs(path: Path) -> bool:
    """Return whether a file in a folder is one of outputs, by its name."""
    return (path.suffix.lower() in SUFFIXES and not path.name.startswith(".")) or (path / "logits.npy").exists()


def natural_order(path: str | Path) -> list[tuple[int, str]]:
    """Return a key that sorts by the numbers in names: part-2 before part-10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", str(path))]


def check_writable(path: str | Path) -> Path:
    """Return the path; raise if its suffix belongs to a format that is not written."""
    path = Path(path)
    if path.suffix.lower() in _NOT_WRITTEN:
        raise ValueError(
            f"Outputs are written as .safetensors or .npz, got {path.name!r}. Use {path.stem}.safetensors instead."
        )
    return check_not_a_folder(path)


def write(path: str | Path, arrays: Mapping[str, Any], metadata: Mapping[str, str]) -> None:
    """Write arrays and metadata as .npz if the path has that suffix, else as safetensors."""
    path = check_writable(path)
    if path.suffix.lower() == ".npz":
        with atomic_write(path) as temporary, temporary.open("wb") as file:
            np.savez(file, **{**arrays, METADATA: np.array(json.dumps(dict(metadata)))})
        return
    layers = [name.removeprefix(FEATURE_PREFIX) for name in arrays if name.startswith(FEATURE_PREFIX)]
    safetensors_file.write(path, {"format": FORMAT, "version": 1, "layers": layers, METADATA: dict(metadata)}, arrays)


def read(
    path: str | Path, layout: FileLayout = DEFAULT_LAYOUT, max_bytes: int | None = None, *, verify: bool = True
) -> FileContent:
    """Return what a file or folder of outputs holds.

    Without ``verify``, the checksum of a safetensors file is not computed: only its header is read at once.
    """
    path = Path(path)
    if path.suffix.lower() in TABLE_SUFFIXES and path.is_file():
        with open_file(path) as file:
            _check_suffix(path, sniff_format(file), path.suffix.lower())
            table = read_table(path, file, layout)
        return interpret(path, table, {}, replace(layout, scores=None, labels=None, id=None))
    return interpret(path, *_read_arrays(path, max_bytes, verify=verify), layout)


def require_labels(path: Path, has_labels: bool, why: str) -> None:
    """Raise unless the outputs of a file have labels, with the content of the file and the reason ``why``."""
    if not has_labels:
        is_table = path.suffix.lower() in TABLE_SUFFIXES or not path.exists()
        names = "" if is_table else f", only {listed(list(_read_arrays(path, None, verify=False)[0]))}"
        raise ValueError(
            f"{path} has no labels{names}: {why} Name the array labels (in a table the column label), or say which it "
            "is: --labels NAME."
        )


def _read_arrays(path: Path, max_bytes: int | None, *, verify: bool) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the arrays by name, in the order of the layers, and the metadata of a file or folder."""
    if path.is_dir():
        return _read_folder(path), {}
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist. {READABLE}.")
    suffix = path.suffix.lower()
    with open_file(path) as file:
        held = sniff_format(file)
        if suffix == ".npz":
            _check_suffix(path, held, ".npz")
            return _read_npz(path, file, max_bytes)
        if suffix == ".safetensors":
            _check_suffix(path, held, ".safetensors")
        elif held != ".safetensors":
            raise ArtefactError(_advice(path, suffix))
    return _read_safetensors(path, verify)


def sniff_format(file: BinaryIO) -> str | None:
    """Return the suffix that matches the first bytes of a file, or None if they match no known format."""
    start = file.read(9)
    file.seek(0)
    if start[8:9] == b"{":
        return ".safetensors"
    return next((suffix for signature, suffix in _SIGNATURES.items() if start.startswith(signature)), None)


def _check_suffix(path: Path, held: str | None, suffix: str) -> None:
    if held in (".safetensors", ".npz") and held != suffix:
        raise ArtefactError(
            f"{path} is named {suffix} but holds a {held} file. Rename it to {path.with_suffix(held).name}."
        )
    if held in (".npy", ".parquet", ".pkl") and held != suffix:
        raise ArtefactError(f"{path} is named {suffix} but holds something else. {_advice(path, held)}")


def _advice(path: Path, suffix: str) -> str:
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


def _read_npz(path: Path, file: BinaryIO, max_bytes: int | None) -> tuple[dict[str, Any], dict[str, str]]:
    name = ""
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
    except Exception as error:
        if "allow_pickle" in str(error) and name:
            raise ArtefactError(
                f"{path}: the array {name!r} holds Python objects. Convert it first: array.astype(float)."
            ) from None
        raise ArtefactError(f"{path} is not a valid .npz file: it is damaged or not an .npz. {READABLE}.") from None
    metadata = arrays.get(METADATA)
    # `write` stores one JSON string. An array of the same name from another program is left alone.
    if metadata is None or metadata.ndim or metadata.dtype.kind != "U":
        return arrays, {}
    del arrays[METADATA]
    return arrays, _check_metadata(path, safetensors_file.parse_json(path, str(metadata)))


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
    """Return whether the members fill the archive up to its list of them, but for their own headers."""
    starts = sorted(member.header_offset for member in members)
    gaps = zip(starts, [*starts[1:], archive.start_dir], strict=True)
    sizes = {member.header_offset: member.compress_size + len(os.fsencode(member.filename)) for member in members}
    return starts[:1] == [0] and all(0 <= end - start - sizes[start] <= MOST_MEMBER_HEADER for start, end in gaps)


def _read_member(opened: Any, size: int) -> Any:
    """Return an array of an archive; raise if its header promises more or fewer bytes than the archive holds."""
    version = np.lib.format.read_magic(opened)
    reader = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = reader(opened)
    if not dtype.hasobject and opened.tell() + dtype.itemsize * math.prod(shape) != size:
        raise ValueError("an array has another size than its header says")
    opened.seek(0)
    return np.lib.format.read_array(opened, allow_pickle=False)


def _check_metadata(path: Path, metadata: Any) -> dict[str, str]:
    if not isinstance(metadata, dict):
        raise ArtefactError(f"{path} is damaged: its metadata must map names to strings.")
    return {name: str(value) for name, value in metadata.items()}


def _read_safetensors(path: Path, verify: bool) -> tuple[dict[str, Any], dict[str, str]]:
    header, arrays = safetensors_file.read(path, verify=verify)
    if not header:
        return arrays, {}
    safetensors_file.check_format(path, header, FORMAT)
    layers = header.get("layers")
    if not isinstance(layers, list) or {*arrays} - {"labels"} != {
        "logits",
        *(f"{FEATURE_PREFIX}{one}" for one in layers),
    }:
        raise ArtefactError(f"{path} is damaged: it lists the layers {layers}, but has the arrays {listed([*arrays])}.")
    order = ["logits", *(["labels"] if "labels" in arrays else []), *(FEATURE_PREFIX + layer for layer in layers)]
    return {name: arrays[name] for name in order}, _check_metadata(path, header.get(METADATA, {}))


def _read_folder(path: Path) -> dict[str, Any]:
    arrays: dict[str, Any] = {}
    for file in sorted(path.rglob("*.npy")):
        try:
            open_file(file).close()
            name = file.relative_to(path).with_suffix("").as_posix()
            arrays[name] = np.load(file, mmap_mode="r", allow_pickle=False)
        except (OSError, ValueError, EOFError):
            raise ArtefactError(f"{file} is not a valid .npy file of numbers.") from None
    return arrays
