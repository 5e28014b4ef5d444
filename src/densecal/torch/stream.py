"""extract_to: resumable extraction to a file, for data sets larger than memory."""

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
from densecal.io.files import HEADER_KEY, atomic_write
from densecal.io.output_files import FORMAT, check_writable
from densecal.outputs import Outputs
from densecal.torch.extraction import Extraction, Piece, check_loader
from densecal.torch.features.batches import Batch, BatchFn, BatchT
from densecal.torch.features.layers import LayerChoice
from densecal.torch.fingerprint import differences, fingerprint

STATE = "state.json"
VERSION = 2
"""Resume-format version; other versions are rejected."""
RECORD_SECONDS = 2.0
"""Time between syncs to disk; a sync after each batch would slow down a fast classifier."""
SAFETENSORS_DTYPES = {"f4": "F32", "f2": "F16", "i8": "I64"}


def extract_to(
    path: str | Path,
    model: nn.Module,
    loader: Iterable[BatchT],
    layers: LayerChoice = "auto",
    *,
    batch_fn: BatchFn[BatchT] | None = None,
    device: torch.device | str | None = None,
    autocast: torch.dtype | None = None,
    feature_dtype: torch.dtype = torch.float32,
    progress: bool = True,
) -> Outputs:
    """Extract to a file, batch by batch, and return the memory-mapped outputs.

    Until the file is complete, the batches are in a folder ``PATH.partial``. To resume after an interruption, repeat
    the call. It checks that the loader yields the finished batches again, so the loader must not shuffle. Different
    inputs, labels, layers, precision or weights raise an error.

    Parameters
    ----------
    path : str or Path
        The .safetensors file to write; ``Outputs.load`` reads it.
    model, loader, layers, batch_fn, device, autocast, feature_dtype, progress :
        As in :func:`~densecal.torch.extract`.

    Examples
    --------
    >>> import tempfile
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     extract_to(folder + "/train.safetensors", model, [torch.randn(5, 4), torch.randn(2, 4)])
    Outputs(7 samples, 3 classes, no labels, features {1: 8, logits: 3})
    """
    check_loader(loader)
    path = check_writable(path)
    if path.suffix.lower() == ".npz":
        raise ValueError(f"extract_to writes a .safetensors file, got {path.name!r}.")
    if path.exists():
        raise FileExistsError(f"{path} already exists. Remove it or choose another path.")
    run = Extraction(model, layers, batch_fn=batch_fn, device=device, autocast=autocast, feature_dtype=feature_dtype)
    settings = {"autocast": str(autocast), "feature_dtype": str(feature_dtype)}
    partial = _Partial(path.with_name(path.name + ".partial"), model, settings)
    try:
        checked = partial.checked(map(run.split, loader))
        with closing(run.pieces(checked, skip=partial.n_batches, progress=progress)) as pieces:
            for piece in pieces:
                partial.append(piece, list(run.layers))
    finally:
        partial.record()
    partial.finish(path, list(run.layers))
    outputs = Outputs.load(path)
    shutil.rmtree(partial.folder)
    return outputs


class _Partial:
    """The folder of an unfinished extraction: one growing raw file per array, and a record of the finished batches."""

    def __init__(self, folder: Path, model: nn.Module, settings: dict[str, str]) -> None:
        self.folder = folder
        self.state: dict[str, Any] = {
            "version": VERSION,
            "fingerprint": fingerprint(model),
            "settings": settings,
            "layers": None,
            "arrays": {},
            "batches": [],  # The checksum and the number of rows of each batch.
        }
        self.recorded, self.recorded_at = 0, time.monotonic()
        self.seen: list[int] = []
        if (folder / STATE).exists():
            self._resume(model, settings)

    def _resume(self, model: nn.Module, settings: dict[str, str]) -> None:
        try:
            state = json.loads((self.folder / STATE).read_text())
        except ValueError as error:
            raise self._error(f"is damaged: {error}") from error
        if not isinstance(state, dict) or state.get("version") != VERSION:
            raise self._error("was started by another version of densecal")
        difference = differences(state["fingerprint"], model)
        if difference is not None:
            raise self._error(f"was started with another classifier ({difference})")
        for name, now in settings.items():
            if (begun := state["settings"][name]) != now:
                raise self._error(f"was started with {name}={begun}, not {now}")
        self.state, self.recorded = state, len(state["batches"])
        for _, _, raw, size in self._sources().values():
            found = raw.stat().st_size if raw.exists() else 0
            if found < size:
                raise self._error(f"is damaged: {raw.name} has {found} of its {size} bytes")
            # An interruption can leave a partial batch after the recorded rows.
            os.truncate(raw, size)

    def _error(self, why: str) -> ArtefactError:
        return ArtefactError(f"{self.folder} {why}. Delete the folder to start again.")

    @property
    def n_batches(self) -> int:
        """Number of finished batches."""
        return len(self.state["batches"])

    def checked(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Yield the batches; raise if a finished batch differs or is missing."""
        known = [checksum for checksum, _ in self.state["batches"]]
        for number, batch in enumerate(batches):
            self.seen.append(_checksum([batch.args, batch.kwargs, batch.labels], 0))
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
        self.folder.mkdir(parents=True, exist_ok=True)
        self._check_layers(layers)
        if self.n_batches and sorted(self.state["arrays"]) != sorted(piece):
            raise self._error("was started with labels and this batch has none, or the reverse")
        for name, values in piece.items():
            self._append_array(name, values.numpy())
        self.state["batches"].append([self.seen[self.n_batches], len(piece["logits"])])
        if time.monotonic() - self.recorded_at > RECORD_SECONDS:
            self.record()

    def _check_layers(self, layers: list[str]) -> None:
        if self.state["layers"] not in (None, layers):
            raise self._error(f"was started with the layers {self.state['layers']}, not {layers}")
        self.state["layers"] = layers

    def _append_array(self, name: str, values: Any) -> None:
        known = self.state["arrays"]
        kind = {"dtype": values.dtype.str, "shape": list(values.shape[1:])}
        entry = known.setdefault(name, {"number": len(known), **kind})
        if {key: entry[key] for key in kind} != kind:
            raise self._error(f"has {name!r} as {entry}, but this batch has {kind}")
        # Overwrite what an interruption left before the first record.
        with self._raw(name).open("ab" if self.n_batches else "wb") as raw:
            raw.write(np.ascontiguousarray(values).tobytes())

    def record(self) -> None:
        """Sync the raw files to disk, then record their contents."""
        if self.n_batches == self.recorded:
            return
        for name in self.state["arrays"]:
            with self._raw(name).open("r+b") as raw:
                os.fsync(raw.fileno())
        with atomic_write(self.folder / STATE) as temporary, temporary.open("w") as file:
            json.dump(self.state, file)
            file.flush()
            os.fsync(file.fileno())
        self.recorded, self.recorded_at = self.n_batches, time.monotonic()

    def finish(self, path: Path, layers: list[str]) -> None:
        """Join the raw files into one safetensors file without loading them into memory."""
        if not self.n_batches:
            raise ValueError("loader yielded no batches.")
        self._check_layers(layers)
        header = {"format": FORMAT, "version": 1, "layers": layers, "metadata": {}}
        entries: dict[str, Any] = {"__metadata__": {HEADER_KEY: json.dumps(header)}}
        offset = 0
        for name, (dtype, shape, _, size) in self._sources().items():
            entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + size]}
            offset += size
        text = json.dumps(entries).encode()
        text += b" " * (-len(text) % 8)
        with atomic_write(path) as temporary, temporary.open("wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for _, _, raw, _ in self._sources().values():
                with raw.open("rb") as source:
                    shutil.copyfileobj(source, file, 1 << 22)

    def _raw(self, name: str) -> Path:
        return self.folder / f"{self.state['arrays'][name]['number']}.raw"

    def _sources(self) -> dict[str, tuple[str, list[int], Path, int]]:
        """Return each array's dtype, shape, raw file and size in bytes."""
        arrays = self.state["arrays"]
        n_rows = sum(rows for _, rows in self.state["batches"])
        sources = {}
        # Wider dtypes first, so that each array starts at a multiple of its item size.
        for name in sorted(arrays, key=lambda name: -np.dtype(arrays[name]["dtype"]).itemsize):
            dtype, shape = arrays[name]["dtype"], [n_rows, *arrays[name]["shape"]]
            size = np.dtype(dtype).itemsize * int(np.prod(shape, dtype=np.int64))
            sources[name] = (SAFETENSORS_DTYPES[dtype[1:]], shape, self._raw(name), size)
        return sources


def _checksum(value: Any, before: int) -> int:
    """Return a checksum of every byte in nested tensors and plain values."""
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
