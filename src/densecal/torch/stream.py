"""Extraction to disk, for data sets larger than memory; an interrupted run goes on where it stopped."""

from __future__ import annotations

import json
import shutil
import zlib
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from densecal import storage
from densecal.errors import ArtefactError
from densecal.output_files import FORMAT
from densecal.outputs import Outputs
from densecal.torch.batches import split_batch
from densecal.torch.extraction import Extraction, Piece
from densecal.torch.fingerprint import differences, fingerprint
from densecal.torch.layers import LayerChoice

STATE = "state.json"
PARTIAL = ".partial"


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
    after them, so the loader must not shuffle.

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
    path = Path(path)
    if path.exists():
        raise FileExistsError(f"{path} exists. Remove it, or choose another path.")
    extraction = Extraction(model, layers, device=device, autocast=autocast, feature_dtype=feature_dtype)
    partial = _Partial(path.with_name(path.name + PARTIAL), model)
    checked = partial.checked(loader, model)
    with closing(extraction.pieces(checked, skip=partial.batches, progress=progress)) as pieces:
        for piece in pieces:
            partial.append(piece, list(extraction.layers))
    if not partial.batches:
        raise ValueError("loader gave no batch, so there is nothing to extract.")
    partial.finish(path)
    return Outputs.load(path)


class _Partial:
    """The folder of an unfinished extraction: one growing raw file an array, and what is certain to be in them."""

    def __init__(self, folder: Path, model: nn.Module) -> None:
        self.folder = folder
        self.state: dict[str, Any] = {"fingerprint": fingerprint(model), "arrays": {}, "digests": [], "rows": 0}
        if not (folder / STATE).exists():
            return
        try:
            state = json.loads((folder / STATE).read_text())
            difference = differences(state["fingerprint"], model)
        except (ValueError, KeyError) as error:
            raise ArtefactError(f"{folder} is damaged: {error}. Delete it to start again.") from error
        if difference is not None:
            raise ArtefactError(f"{folder} was begun with another classifier ({difference}). Delete it to start again.")
        self.state = state

    @property
    def batches(self) -> int:
        """How many batches are done."""
        return len(self.state["digests"])

    def checked(self, loader: Iterable[Any], model: nn.Module) -> Iterator[Any]:
        """Yield the loader's batches and make sure that those already done are the same as then."""
        known = list(self.state["digests"])
        self._seen: list[int] = []
        for number, batch in enumerate(loader):
            self._seen.append(_digest(batch, model))
            if number < len(known) and self._seen[number] != known[number]:
                raise ArtefactError(
                    f"Batch {number} is not the one that {self.folder} was begun with. Use a loader that gives "
                    "the same batches in the same order (no shuffling, no random augmentation), or delete the folder "
                    "to start again."
                )
            yield batch

    def append(self, piece: Piece, layers: list[str]) -> None:
        """Add one batch's arrays, then record that they are there."""
        rows = self.state["rows"]
        self.folder.mkdir(parents=True, exist_ok=True)
        if rows and (self.state["layers"] != layers or sorted(self.state["arrays"]) != sorted(piece)):
            raise ArtefactError(
                f"{self.folder} was begun with the layers {self.state['layers']}, not {layers}, or with labels where "
                "there are none now. Delete it to start again."
            )
        self.state["layers"] = layers
        for name, values in piece.items():
            self._append_array(name, values.numpy(), rows)
        self.state["rows"] = rows + len(piece["logits"])
        self.state["digests"] = self._seen[: self.batches + 1]
        with storage.whole_file(self.folder / STATE) as temporary:
            temporary.write_text(json.dumps(self.state))

    def _append_array(self, name: str, values: Any, rows: int) -> None:
        known = self.state["arrays"]
        entry = known.setdefault(name, {"number": len(known), "dtype": values.dtype.str, "shape": values.shape[1:]})
        file = self.folder / f"{entry['number']}.raw"
        row_bytes = int(np.dtype(entry["dtype"]).itemsize * np.prod(entry["shape"], dtype=np.int64))
        with file.open("r+b" if file.exists() else "w+b") as raw:
            # An interruption can leave half a batch behind the recorded rows.
            raw.truncate(rows * row_bytes)
            raw.seek(0, 2)
            raw.write(np.ascontiguousarray(values, dtype=entry["dtype"]).tobytes())

    def finish(self, path: Path) -> None:
        """Join the raw files into one file at ``path`` and remove the folder."""
        header = {"format": FORMAT, "version": 1, "layers": self.state["layers"], "facts": {}}
        with storage.whole_file(path) as temporary:
            _write_safetensors(temporary, header, self._sources())
        shutil.rmtree(self.folder)

    def _sources(self) -> dict[str, tuple[str, list[int], Path]]:
        arrays = self.state["arrays"]
        # Longer items first, so that each array starts at a multiple of its items' size.
        order = sorted(arrays, key=lambda name: -np.dtype(arrays[name]["dtype"]).itemsize)
        kinds = {"f4": "F32", "f2": "F16", "i8": "I64"}
        return {
            name: (
                kinds[arrays[name]["dtype"][1:]],
                [self.state["rows"], *arrays[name]["shape"]],
                self.folder / f"{arrays[name]['number']}.raw",
            )
            for name in order
        }


def _write_safetensors(path: Path, header: dict[str, Any], sources: dict[str, tuple[str, list[int], Path]]) -> None:
    """Write a safetensors file from raw files without reading one into memory."""
    entries: dict[str, Any] = {"__metadata__": {storage.HEADER_KEY: json.dumps(header)}}
    offset = 0
    for name, (kind, shape, raw) in sources.items():
        size = raw.stat().st_size
        entries[name] = {"dtype": kind, "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(entries).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, _, raw in sources.values():
            with raw.open("rb") as source:
                shutil.copyfileobj(source, file, 1 << 22)


def _digest(batch: Any, model: nn.Module) -> int:
    """Return a number that tells batches apart, from the first and last sample of each input."""
    parts = split_batch(batch, model)
    digest = 0
    for value in (*parts.inputs, *parts.named.values()):
        if isinstance(value, Tensor) and value.ndim:
            ends = torch.stack([value[0], value[-1]]).cpu().contiguous()
            digest = zlib.crc32(ends.view(torch.uint8).numpy().tobytes(), digest)
    return zlib.crc32(str(parts.samples).encode(), digest)
