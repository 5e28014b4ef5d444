"""Extraction to disk, for data sets larger than memory; an interrupted run goes on where it stopped."""

from __future__ import annotations

import json
import os
import shutil
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from densecal.errors import ArtefactError
from densecal.io import storage
from densecal.io.output_files import FORMAT, check_writable
from densecal.outputs import Outputs
from densecal.torch.extraction import Extraction, Piece
from densecal.torch.features.batches import split_batch
from densecal.torch.features.layers import LayerChoice
from densecal.torch.fingerprint import differences, fingerprint

STATE = "state.json"
PARTIAL = ".partial"
VERSION = 2
"""Of the folder's contents: one of another version is not gone on with."""
RECORD_SECONDS = 2.0
"""How often what is done is made certain; waiting for the disk after each batch would slow a fast classifier."""


def extract_to(
    path: str | Path,
    model: nn.Module,
    loader: Iterable[Any],
    layers: LayerChoice = "auto",
    *,
    device: torch.device | str | None = None,
    autocast: torch.dtype | None = None,
    feature_dtype: torch.dtype = torch.float32,
    progress: bool = True,
) -> Outputs:
    """Extract into a file, batch by batch, and return the outputs memory-mapped from it.

    While it runs, the batches lie in a folder ``PATH.partial``; the file appears when it is whole. The same call after
    an interruption reads the batches that are done again from the loader, checks that they are the same, and goes on
    after them, so the loader must not shuffle. Other inputs, labels, layers, precision or weights than the folder was
    begun with are refused.

    Parameters
    ----------
    path : str or Path
        The file to write; ``Outputs.load`` reads it.
    model, loader, layers, device, autocast, feature_dtype, progress :
        As in :func:`~densecal.torch.extract`.

    Examples
    --------
    >>> import tempfile
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     extract_to(folder + "/train.safetensors", model, [torch.randn(5, 4), torch.randn(2, 4)])
    Outputs(7 samples, 3 classes, no labels, features {1: 8, logits: 3})
    """
    path = check_writable(path)
    if path.suffix.lower() == ".npz":
        raise ValueError(f"extract_to writes a .safetensors file, got {path.name!r}.")
    if path.exists():
        raise FileExistsError(f"{path} exists. Remove it, or choose another path.")
    extraction = Extraction(model, layers, device=device, autocast=autocast, feature_dtype=feature_dtype)
    settings = {"autocast": str(autocast), "feature_dtype": str(feature_dtype)}
    partial = _Partial(path.with_name(path.name + PARTIAL), model, settings)
    checked = partial.checked(loader, model)
    try:
        with closing(extraction.pieces(checked, skip=partial.batches, progress=progress)) as pieces:
            for piece in pieces:
                partial.append(piece, list(extraction.layers))
    finally:
        partial.record()
    partial.finish(path, list(extraction.layers))
    outputs = Outputs.load(path)
    partial.remove()
    return outputs


class _Partial:
    """The folder of an unfinished extraction: one growing raw file an array, and what is certain to be in them."""

    def __init__(self, folder: Path, model: nn.Module, settings: dict[str, str]) -> None:
        self.folder = folder
        self.state: dict[str, Any] = {
            "version": VERSION,
            "fingerprint": fingerprint(model),
            "settings": settings,
            "layers": None,
            "arrays": {},
            "batches": [],  # A digest and the number of rows of each: one entry, so that they never disagree.
        }
        self.recorded, self.recorded_at = 0, time.monotonic()
        self.seen: list[int] = []
        if (folder / STATE).exists():
            self._resume(model, settings)

    def _resume(self, model: nn.Module, settings: dict[str, str]) -> None:
        try:
            state = json.loads((self.folder / STATE).read_text())
        except ValueError as error:
            raise self._refused(f"is damaged: {error}") from error
        if not isinstance(state, dict) or state.get("version") != VERSION:
            raise self._refused("was begun by another version of densecal")
        difference = differences(state["fingerprint"], model)
        if difference is not None:
            raise self._refused(f"was begun with another classifier ({difference})")
        for name, now in settings.items():
            if (begun := state["settings"][name]) != now:
                raise self._refused(f"was begun with {name}={begun}, not {now}")
        self.state, self.recorded = state, len(state["batches"])
        for _, _, raw, size in self._sources().values():
            found = raw.stat().st_size if raw.exists() else 0
            if found < size:
                raise self._refused(f"is damaged: {raw.name} has {found} of its {size} bytes")
            # An interruption can leave half a batch behind the recorded rows.
            os.truncate(raw, size)

    def _refused(self, why: str) -> ArtefactError:
        return ArtefactError(f"{self.folder} {why}. Delete the folder to start again.")

    @property
    def batches(self) -> int:
        """How many batches are done."""
        return len(self.state["batches"])

    @property
    def rows(self) -> int:
        """How many samples are done."""
        return sum(rows for _, rows in self.state["batches"])

    def checked(self, loader: Iterable[Any], model: nn.Module) -> Iterator[Any]:
        """Yield the loader's batches and make sure that those already done are the same as then, and all there."""
        known = [digest for digest, _ in self.state["batches"]]
        for number, batch in enumerate(loader):
            self.seen.append(_digest(batch, model))
            if number < len(known) and self.seen[number] != known[number]:
                raise ArtefactError(
                    f"Batch {number} is not the one that {self.folder} was begun with: its inputs or labels differ. "
                    "Use a loader that gives the same batches in the same order (no shuffling, no random "
                    "augmentation), or delete the folder to start again."
                )
            yield batch
        if len(self.seen) < len(known):
            raise self._refused(f"holds {len(known)} batches already, and the loader gave only {len(self.seen)}")

    def append(self, piece: Piece, layers: list[str]) -> None:
        """Add one batch's arrays; what is added is recorded every few seconds."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._check_layers(layers)
        if self.batches and sorted(self.state["arrays"]) != sorted(piece):
            raise self._refused("was begun with labels where there are none now, or without them where there are")
        for name, values in piece.items():
            self._append_array(name, values.numpy())
        self.state["batches"].append([self.seen[self.batches], len(piece["logits"])])
        if time.monotonic() - self.recorded_at > RECORD_SECONDS:
            self.record()

    def _check_layers(self, layers: list[str]) -> None:
        if self.state["layers"] not in (None, layers):
            raise self._refused(f"was begun with the layers {self.state['layers']}, not {layers}")
        self.state["layers"] = layers

    def _append_array(self, name: str, values: Any) -> None:
        known = self.state["arrays"]
        kind = {"dtype": values.dtype.str, "shape": list(values.shape[1:])}
        entry = known.setdefault(name, {"number": len(known), **kind})
        if {key: entry[key] for key in kind} != kind:
            raise self._refused(f"holds {name!r} as {entry}, and this batch gave {kind}")
        # What an interruption left before anything was recorded is overwritten.
        with self._raw(name).open("ab" if self.batches else "wb") as raw:
            raw.write(np.ascontiguousarray(values).tobytes())

    def record(self) -> None:
        """Write down what is done, once it is certain to be on the disk."""
        if self.batches == self.recorded:
            return
        for name in self.state["arrays"]:
            with self._raw(name).open("r+b") as raw:
                os.fsync(raw.fileno())
        with storage.whole_file(self.folder / STATE) as temporary, temporary.open("w") as file:
            json.dump(self.state, file)
            file.flush()
            os.fsync(file.fileno())
        self.recorded, self.recorded_at = self.batches, time.monotonic()

    def finish(self, path: Path, layers: list[str]) -> None:
        """Join the raw files into one file at ``path``."""
        if not self.batches:
            raise ValueError("loader gave no batch, so there is nothing to extract.")
        self._check_layers(layers)
        header = {"format": FORMAT, "version": 1, "layers": self.state["layers"], "metadata": {}}
        with storage.whole_file(path) as temporary:
            _write_safetensors(temporary, header, self._sources())

    def remove(self) -> None:
        """Remove the folder, which the file has made needless."""
        shutil.rmtree(self.folder)

    def _raw(self, name: str) -> Path:
        return self.folder / f"{self.state['arrays'][name]['number']}.raw"

    def _sources(self) -> dict[str, tuple[str, list[int], Path, int]]:
        """Return each array's type, shape, raw file and size in bytes."""
        arrays = self.state["arrays"]
        # Longer items first, so that each array starts at a multiple of its items' size.
        order = sorted(arrays, key=lambda name: -np.dtype(arrays[name]["dtype"]).itemsize)
        kinds = {"f4": "F32", "f2": "F16", "i8": "I64"}
        rows = self.rows
        sources = {}
        for name in order:
            dtype, shape = arrays[name]["dtype"], [rows, *arrays[name]["shape"]]
            size = np.dtype(dtype).itemsize * int(np.prod(shape, dtype=np.int64))
            sources[name] = (kinds[dtype[1:]], shape, self._raw(name), size)
        return sources


def _write_safetensors(
    path: Path, header: dict[str, Any], sources: Mapping[str, tuple[str, list[int], Path, int]]
) -> None:
    """Write a safetensors file from raw files without reading one into memory."""
    entries: dict[str, Any] = {"__metadata__": {storage.HEADER_KEY: json.dumps(header)}}
    offset = 0
    for name, (kind, shape, _, size) in sources.items():
        entries[name] = {"dtype": kind, "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, _, raw, _ in sources.values():
            with raw.open("rb") as source:
                shutil.copyfileobj(source, file, 1 << 22)


def _digest(batch: Any, model: nn.Module) -> int:
    """Return a number that tells batches apart, from every byte of the inputs and the labels."""
    parts = split_batch(batch, model)
    return _checksum([*parts.inputs, parts.named, parts.labels], 0)


def _checksum(value: Any, before: int) -> int:
    if isinstance(value, Tensor):
        flat = value.detach().cpu().contiguous().reshape(-1)
        before = zlib.crc32(f"{value.dtype} {tuple(value.shape)}".encode(), before)
        return zlib.crc32(flat.view(torch.uint8).numpy().data, before)
    if isinstance(value, Mapping):
        return _checksum([part for name in sorted(value) for part in (name, value[name])], before)
    if isinstance(value, (list, tuple)):
        for part in value:
            before = _checksum(part, before)
    elif value is None or isinstance(value, (str, int, float)):
        before = zlib.crc32(repr(value).encode(), before)
    return before
