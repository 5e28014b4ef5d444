"""extract_to: resumable extraction to a file, for data sets larger than memory."""

from __future__ import annotations

import re
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from densecal.display import track
from densecal.errors import ArtefactError
from densecal.io import safetensors_file
from densecal.io.array_files import METADATA, check_writable
from densecal.io.atomic_files import hold_lock
from densecal.outputs import Outputs
from densecal.torch.batches import Batch, BatchFn, BatchT
from densecal.torch.extraction import Extraction, Piece, as_outputs
from densecal.torch.features.layers import LayerChoice
from densecal.torch.loaders import check_loader
from densecal.torch.shards import changed_setting, settings_of

RECORD_SECONDS = 2.0
"""Time between two files; one for every batch would slow down a fast classifier."""
BATCHES = "batches"
"""The name of the checksums of a file's batches in its metadata."""
JOINED = "joined.safetensors"
"""All batches in one file, which is renamed to that of the user when the others are removed."""
OWN_FILES = re.compile(r"(\d{8}|joined)\.safetensors|\.(\d{8}|joined)\.safetensors\.[0-9a-f]{16}\.partial")


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
    model, loader, layers, batch_fn, device, autocast, feature_dtype, progress
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
    folder = path.with_name(path.name + ".partial")
    run = Extraction(model, layers, batch_fn=batch_fn, device=device, autocast=autocast, feature_dtype=feature_dtype)
    path.parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        try:
            stack.enter_context(hold_lock(path))
        except BlockingIOError:
            raise ArtefactError(f"{path} is in use by another process that extracts to the same file.") from None
        try:
            if path.exists():
                raise FileExistsError(f"{path} already exists. Remove it or choose another path.")
            parts = _Parts(folder, run)
            if not parts.joined.exists():
                parts.complete(loader, progress=progress)
                parts.join()
            for file in folder.iterdir():
                if file != parts.joined:
                    file.unlink()
            parts.joined.replace(path)
        finally:
            with suppress(OSError):  # It has files after an interruption.
                folder.rmdir()
    return Outputs.load(path)


class _Parts:
    """The finished batches: files of outputs, each named by the number of its first batch."""

    def __init__(self, folder: Path, run: Extraction) -> None:
        self.folder, self.run, self.settings = folder, run, settings_of(run)
        self.joined = folder / JOINED
        self.files: list[Path] = []
        self.known: list[str] = []  # The checksums of the batches in the files, ...
        self.seen: list[str] = []  # ... and of those that the loader yields.
        self.kind: tuple[tuple[str, ...], bool] | None = None
        self.pieces: list[Piece] = []  # The batches for the next file.
        self.written_at = time.monotonic()
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            raise ArtefactError(f"{folder} must be a folder, not a file or a link. Remove it.")
        found = sorted(folder.iterdir()) if folder.exists() else []
        for path in found:
            if not OWN_FILES.fullmatch(path.name) or path.is_symlink() or not path.is_file():
                raise self._error(f"holds {path.name!r}, which extract_to did not write")
        for path in [self.joined] if self.joined in found else found:
            if path.suffix == ".safetensors":
                self._read(path)

    def _read(self, path: Path) -> None:
        try:
            part = Outputs.load(path)
        except (OSError, ValueError) as error:
            raise self._error(f"is damaged: {error}") from error
        change = changed_setting(part.metadata, self.settings)
        if change is not None:
            raise self._error(f"was started with {change}")
        self._check_kind(part)
        if path not in (self.joined, self._next_path()):
            raise self._error(f"is damaged: it lacks {self._next_path().name}")
        self.files.append(path)
        self.known += part.metadata.get(BATCHES, "").split()

    def _check_kind(self, part: Outputs) -> None:
        kind = part.layers, part.has_labels
        if self.kind not in (None, kind):
            raise self._error("was started with labels and this batch has none, or the reverse, or with other layers")
        self.kind = kind

    def _next_path(self) -> Path:
        return self.folder / f"{len(self.known):08}.safetensors"

    def _error(self, why: str) -> ArtefactError:
        return ArtefactError(f"{self.folder} {why}. Delete the folder to start again.")

    def complete(self, loader: Iterable[Any], *, progress: bool) -> None:
        """Extract the batches that the folder lacks."""
        read = track(loader, "reading loader") if progress else loader
        checked = self._checked(self.run.batches(read))
        try:
            with closing(self.run.pieces(checked, skip=len(self.known), progress=False)) as pieces:
                for piece in pieces:
                    self.pieces.append(piece)
                    if time.monotonic() - self.written_at > RECORD_SECONDS:
                        self._write()
        finally:
            self._write()

    def _checked(self, batches: Iterable[Batch]) -> Iterator[Batch]:
        """Yield the batches; raise if a finished batch differs or is missing."""
        n_known = len(self.known)
        for number, batch in enumerate(batches):
            self.seen.append(f"{_checksum([batch.args, batch.kwargs, batch.labels]):08x}")
            if number < n_known and self.seen[number] != self.known[number]:
                raise ArtefactError(
                    f"Batch {number} differs in its inputs or labels from the one that {self.folder} was started with. "
                    "Use a loader that yields the same batches in the same order (no shuffling, no random "
                    "augmentation), or delete the folder to start again."
                )
            yield batch
        if len(self.seen) < n_known:
            raise self._error(f"already has {n_known} batches, but the loader yielded only {len(self.seen)}")

    def _write(self) -> None:
        """Write the batches that are not in a file yet."""
        if not self.pieces:
            return
        outputs, first, path = as_outputs(self.pieces, self.run.layers), len(self.known), self._next_path()
        self._check_kind(outputs)
        checksums = self.seen[first : first + len(self.pieces)]
        outputs.metadata = {**self.settings, BATCHES: " ".join(checksums)}
        outputs.save(path)
        self.files.append(path)
        self.known += checksums
        self.pieces, self.written_at = [], time.monotonic()

    def join(self) -> None:
        """Write one file of all batches without loading them into memory."""

        def arrays(name: str) -> Iterator[Any]:
            for file in self.files:
                yield safetensors_file.read(file, verify=False)[1][name]

        header, first = safetensors_file.read(self.files[0], verify=False)
        n_rows = sum(map(len, arrays("logits")))
        entries = {
            name: safetensors_file.Entry(array.dtype, [n_rows, *array.shape[1:]], arrays(name))
            for name, array in first.items()
        }
        safetensors_file.write_entries(self.joined, {**header, METADATA: self.settings}, entries)


def _checksum(value: Any, before: int = 0) -> int:
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
