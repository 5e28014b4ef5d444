"""The folder of an unfinished extraction: the finished batches, and a record of them that a later call verifies."""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor, nn

from densecal.arrays import to_numpy
from densecal.errors import ArtefactError
from densecal.io.file_content import FEATURE_PREFIX
from densecal.io.files import atomic_write, lock_file, name_in_errors, open_file
from densecal.io.output_files import FORMAT
from densecal.io.safetensors_file import Entry, parse_json, write_entries
from densecal.outputs import Outputs
from densecal.torch.extraction import Piece
from densecal.torch.features.batches import Batch
from densecal.torch.fingerprint import differences, fingerprint

STATE = "state.json"
VERSION = 3
"""Resume-format version; other versions are rejected."""
RECORD_SECONDS = 2.0
"""Time between syncs to disk; a sync after each batch would slow down a fast classifier."""
COPY_BYTES = 1 << 22
DTYPES = ("<f4", "<f2", "<i8")
OWN_FILES = re.compile(r"\d+\.raw|state\.json|\.state\.json\.[0-9a-f]{16}\.partial")


class PartialOutputs:
    """One growing raw file per array, and a record of the finished batches. One process at a time may use the folder.

    Nothing in the folder is trusted: names of files come from the order of the arrays, links are not followed, and the
    record and the raw files have checksums.
    """

    def __init__(self, folder: Path, model: nn.Module, settings: dict[str, str]) -> None:
        self.folder = folder
        self.state: dict[str, Any] = {
            "version": VERSION,
            "fingerprint": fingerprint(model),
            "settings": settings,
            "layers": None,
            "arrays": {},  # The dtype, the shape of a row and the CRC-32 of each array.
            "batches": [],  # The checksum and the number of rows of each batch.
        }
        self.recorded, self.recorded_at = 0, time.monotonic()
        self.seen: list[int] = []
        self._check_folder()
        folder.mkdir(parents=True, exist_ok=True)
        self._handle = None if os.name == "nt" else os.open(folder, os.O_RDONLY)
        try:
            self._is_locked = self._handle is None or lock_file(self._handle) is not False
            if not self._is_locked:
                raise ArtefactError(f"{folder} is in use by another process that extracts to the same file.")
            if (folder / STATE).exists():
                self._read_state(model, settings)
        except BaseException:
            self.close()
            raise

    def _check_folder(self) -> None:
        if self.folder.is_symlink() or (self.folder.exists() and not self.folder.is_dir()):
            raise ArtefactError(f"{self.folder} must be a folder, not a file or a link. Remove it.")
        if not self.folder.exists():
            return
        for file in self.folder.iterdir():
            if not OWN_FILES.fullmatch(file.name) or file.is_symlink() or not file.is_file():
                raise self._error(f"holds {file.name!r}, which extract_to did not write")

    def _read_state(self, model: nn.Module, settings: dict[str, str]) -> None:
        try:
            with open_file(self.folder / STATE) as file:
                found = parse_json(STATE, file.read())
        except ArtefactError as error:
            raise self._error(f"is damaged: {error}") from None
        state = found.get("state")
        if not isinstance(state, dict) or state.get("version") != VERSION:
            raise self._error("was started by another version of densecal, or is damaged")
        if found.get("sha256") != _digest(state) or not _is_state(state):
            raise self._error(f"is damaged: {STATE} does not match its checksum")
        try:
            difference = differences(state["fingerprint"], model)
        except (ArtefactError, AttributeError, LookupError, TypeError) as error:
            raise self._error(f"is damaged: {STATE} has no valid fingerprint ({error})") from None
        if difference is not None:
            raise self._error(f"was started with another classifier ({difference})")
        for name, now in settings.items():
            if (begun := state["settings"][name]) != now:
                raise self._error(f"was started with {name}={begun}, not {now}")
        self.state, self.recorded = state, len(state["batches"])

    def resume(self) -> None:
        """Check the raw files, and remove what an interruption left after the recorded batches."""
        for name, entry in self.state["arrays"].items() if self.n_batches else ():
            size, raw = self._size(name), self._raw(name)
            found = raw.stat().st_size if raw.exists() else 0
            if found < size:
                raise self._error(f"is damaged: {raw.name} has {found} of its {size} bytes")
            if _crc(self._pieces(name)) != entry["crc32"]:
                raise self._error(f"is damaged: {raw.name} does not match its checksum")
            os.truncate(raw, size)

    def wrote(self, outputs: Outputs) -> bool:
        """Return whether a finished file holds exactly the recorded batches."""
        arrays = {"logits": outputs.logits, **{FEATURE_PREFIX + name: one for name, one in outputs.features.items()}}
        if outputs.labels is not None:
            arrays["labels"] = outputs.labels
        known = self.state["arrays"]
        if not self.n_batches or set(known) != set(arrays) or len(outputs) != self._n_rows:
            return False
        return all(_crc([np.ascontiguousarray(to_numpy(arrays[name]))]) == known[name]["crc32"] for name in known)

    def _error(self, why: str) -> ArtefactError:
        return ArtefactError(f"{self.folder} {why}. Delete the folder to start again.")

    @property
    def n_batches(self) -> int:
        """Number of finished batches."""
        return len(self.state["batches"])

    @property
    def _n_rows(self) -> int:
        return sum(rows for _, rows in self.state["batches"])

    def checked(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Yield the batches; raise if a finished batch differs or is missing."""
        known = [checksum for checksum, _ in self.state["batches"]]
        for number, batch in enumerate(batches):
            self.seen.append(checksum_of([batch.args, batch.kwargs, batch.labels]))
            if number < len(known) and self.seen[number] != known[number]:
                raise ArtefactError(
                    f"Batch {number} differs in its inputs or labels from the one that {self.folder} was started with. "
                    "Use a loader that yields the same batches in the same order (no shuffling, no random "
                    "augmentation), or delete the folder to start again."
                )
            yield batch
        if len(self.seen) < len(known):
            raise self._error(f"already has {len(known)} batches, but the loader yielded only {len(self.seen)}")

    def append(self, piece: Piece, layers: list[str]) -> None:
        """Add the arrays of one batch."""
        self._check_layers(layers)
        if self.n_batches and sorted(self.state["arrays"]) != sorted(piece):
            raise self._error("was started with labels and this batch has none, or the reverse")
        with name_in_errors(self.folder):
            checksums = {name: self._append_array(name, values.numpy()) for name, values in piece.items()}
        for name, checksum in checksums.items():
            self.state["arrays"][name]["crc32"] = checksum
        self.state["batches"].append([self.seen[self.n_batches], len(piece["logits"])])
        if time.monotonic() - self.recorded_at > RECORD_SECONDS:
            self.record()

    def _check_layers(self, layers: list[str]) -> None:
        if self.state["layers"] not in (None, layers):
            raise self._error(f"was started with the layers {self.state['layers']}, not {layers}")
        self.state["layers"] = layers

    def _append_array(self, name: str, values: Any) -> int:
        """Append rows to a raw file and return the new checksum."""
        kind = {"dtype": values.dtype.str, "shape": list(values.shape[1:])}
        entry = self.state["arrays"].setdefault(name, {**kind, "crc32": 0})
        if {key: entry[key] for key in kind} != kind:
            raise self._error(f"has {name!r} as {entry}, but this batch has {kind}")
        content = np.ascontiguousarray(values).tobytes()
        # Overwrite what an interruption left before the first record.
        with _open_raw(self._raw(name), os.O_APPEND if self.n_batches else os.O_TRUNC) as raw:
            raw.write(content)
        return zlib.crc32(content, entry["crc32"])

    def record(self) -> None:
        """Sync the raw files to disk, then record their contents."""
        if self.n_batches == self.recorded:
            return
        for name in self.state["arrays"]:
            with _open_raw(self._raw(name), 0) as raw:
                os.fsync(raw.fileno())
        with atomic_write(self.folder / STATE) as temporary:
            temporary.write_text(json.dumps({"sha256": _digest(self.state), "state": self.state}))
        self.recorded, self.recorded_at = self.n_batches, time.monotonic()

    def finish(self, path: Path, layers: list[str]) -> None:
        """Join the raw files into one safetensors file without loading them into memory."""
        if not self.n_batches:
            raise ValueError("loader yielded no batches.")
        self._check_layers(layers)
        header = {"format": FORMAT, "version": 1, "layers": layers, "metadata": {}}
        arrays = self.state["arrays"]
        entries = {
            name: Entry(np.dtype(entry["dtype"]), [self._n_rows, *entry["shape"]], self._pieces(name))
            for name, entry in arrays.items()
        }
        write_entries(path, header, entries)

    def remove(self) -> None:
        """Remove the folder; the record last, so that an interruption in between can be told."""
        for file in sorted(self.folder.iterdir(), key=lambda file: file.name == STATE):
            file.unlink()
        self.folder.rmdir()

    def close(self) -> None:
        """Let another process use the folder, and remove it if it is empty."""
        if self._is_locked and self.folder.exists() and not any(self.folder.iterdir()):
            self.folder.rmdir()
        if self._handle is not None:
            os.close(self._handle)

    def _raw(self, name: str) -> Path:
        return self.folder / f"{list(self.state['arrays']).index(name)}.raw"

    def _size(self, name: str) -> int:
        entry = self.state["arrays"][name]
        return int(np.dtype(entry["dtype"]).itemsize * math.prod([self._n_rows, *entry["shape"]]))

    def _pieces(self, name: str) -> Iterator[bytes]:
        """Yield the recorded bytes of a raw file."""
        left = self._size(name)
        with open_file(self._raw(name)) as raw:
            while left and (piece := raw.read(min(left, COPY_BYTES))):
                left -= len(piece)
                yield piece


def _open_raw(path: Path, flags: int) -> BinaryIO:
    """Open a raw file for writing without following a link in its place."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | flags | getattr(os, "O_NOFOLLOW", 0), 0o666), "wb")


def _digest(state: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(state, sort_keys=True).encode()).hexdigest()


def _is_state(state: dict[str, Any]) -> bool:
    """Return whether a record has the right types, so that no other part needs to check them."""
    arrays, batches, layers = (state.get(key) for key in ("arrays", "batches", "layers"))
    if not isinstance(arrays, dict) or not isinstance(batches, list) or not isinstance(layers, list):
        return False
    if not all(isinstance(state.get(key), dict) for key in ("fingerprint", "settings")):
        return False
    if set(state["settings"]) != {"autocast", "feature_dtype"} or not all(isinstance(one, str) for one in layers):
        return False
    pairs = all(isinstance(one, list) and len(one) == 2 and all(map(_is_count, one)) for one in batches)
    return pairs and all(
        isinstance(entry, dict)
        and entry.get("dtype") in DTYPES
        and isinstance(entry.get("shape"), list)
        and all(map(_is_count, [*entry["shape"], entry.get("crc32")]))
        for entry in arrays.values()
    )


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _crc(pieces: Iterable[Any]) -> int:
    checksum = 0
    for piece in pieces:
        checksum = zlib.crc32(piece, checksum)
    return checksum


def checksum_of(value: Any, before: int = 0) -> int:
    """Return a checksum of every byte in nested tensors and plain values."""
    if isinstance(value, Tensor):
        flat = value.detach().cpu().contiguous().reshape(-1)
        before = zlib.crc32(f"{value.dtype} {tuple(value.shape)}".encode(), before)
        return zlib.crc32(flat.view(torch.uint8).numpy().data, before)
    if isinstance(value, Mapping):
        return checksum_of([part for name in sorted(value) for part in (name, value[name])], before)
    if isinstance(value, (list, tuple)):
        for part in value:
            before = checksum_of(part, before)
    elif value is None or isinstance(value, (str, int, float)):
        before = zlib.crc32(repr(value).encode(), before)
    return before
