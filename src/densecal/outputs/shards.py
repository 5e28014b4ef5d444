"""OutputShards: outputs in many files, one data set, read when they are used."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from glob import has_magic
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from densecal.arrays import row_blocks
from densecal.arrays.checks import check_labels
from densecal.errors import ArtefactError
from densecal.io import output_files, safetensors_file
from densecal.io.output_files import listed
from densecal.outputs.arrays import name_file_in_errors, split_arrays
from densecal.outputs.outputs import BATCH_SIZE, Outputs, Rows

SUFFIXES = (".safetensors", ".npz")
_NAME = re.compile(r"(.+)-(\d+)-of-(\d+)")


@dataclass(frozen=True)
class _Shard:
    path: Path
    n_rows: int
    content: tuple[object, ...]
    metadata: dict[str, str]
    checksum: str | None


class OutputShards:
    """Outputs in one or many files that are read in batches; `Outputs.open` returns them.

    Safetensors files and folders of ``.npy`` files are memory-mapped, files of other formats are read one at a time. A
    file that is replaced after it was opened is an error.

    Attributes
    ----------
    paths : tuple of Path
        The files, in order.
    metadata : dict
        The metadata on which all files agree.
    n_classes, layers
        As in `Outputs`.
    has_labels : bool
        Whether the files have labels.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Outputs([[2.0, 1.0], [0.0, 3.0]], labels=[0, 1]).save(folder + "/test.safetensors")
    ...     shards = OutputShards(folder)
    ...     print(shards, shards.labels, shards[1:].logits)
    OutputShards(1 file, 2 samples, 2 classes, labels, layers ()) [0 1] [[0. 3.]]
    """

    def __init__(
        self, source: str | Path | Sequence[str | Path], *, assume_logits: bool = False, verify: bool = False
    ) -> None:
        shards = [_describe(path, verify) for path in find_files(source)]
        _check_alike(shards)
        self._shards = shards
        self._starts = [0, *accumulate(shard.n_rows for shard in shards)]
        self._read: tuple[int, tuple[Any, Any, dict[str, Any]]] | None = None
        self.paths = tuple(shard.path for shard in shards)
        self.assume_logits = assume_logits
        first = shards[0]
        self.metadata = {
            key: value
            for key, value in first.metadata.items()
            if all(shard.metadata.get(key) == value for shard in shards)
        }
        logits, labels, features = self._arrays(0)
        self.n_classes, self.has_labels, self.layers = int(logits.shape[1]), labels is not None, tuple(features)

    @property
    def starts(self) -> tuple[int, ...]:
        """The number of the first sample of each file."""
        return tuple(self._starts[:-1])

    def __len__(self) -> int:
        return self._starts[-1]

    def __repr__(self) -> str:
        files = "1 file" if len(self.paths) == 1 else f"{len(self.paths)} files"
        labelled = "labels" if self.has_labels else "no labels"
        return f"OutputShards({files}, {len(self)} samples, {self.n_classes} classes, {labelled}, layers {self.layers})"

    @cached_property
    def labels(self) -> NDArray[np.int64] | None:
        """The labels of all files, or None."""
        if not self.has_labels:
            return None
        found = []
        for place, shard in enumerate(self._shards):
            with name_file_in_errors(shard.path):
                found.append(check_labels(np.array(self._arrays(place)[1]), shard.n_rows, self.n_classes))
        return np.concatenate(found)

    def batches(self, batch_size: int = BATCH_SIZE) -> Iterator[Outputs]:
        """Yield the outputs of at most ``batch_size`` rows at a time, in order; no batch spans two files.

        Logits in half precision are converted to float32.
        """
        for place, shard in enumerate(self._shards):
            for rows in row_blocks(shard.n_rows, 1, batch_size):
                yield self._rows(place, rows)

    def load(self) -> Outputs:
        """Read everything into memory."""
        return self[:]

    def __getitem__(self, rows: Rows) -> Outputs:
        """Return the outputs of the rows given by an index, a slice, an index array or a boolean mask, in memory."""
        if isinstance(rows, (int, np.integer)):
            rows = slice(range(len(self))[int(rows)], range(len(self))[int(rows)] + 1)
        wanted = np.arange(len(self))[rows]
        order = np.argsort(wanted, kind="stable")
        ends = np.searchsorted(wanted[order], self._starts)
        parts = [
            self._rows(place, wanted[order[begin:end]] - self._starts[place])
            for place, (begin, end) in enumerate(pairwise(ends))
            if end > begin
        ]
        found = Outputs.concatenate(parts) if len(parts) > 1 else parts[0]
        found.metadata = dict(self.metadata)
        return found if np.array_equal(order, np.arange(len(order))) else found[np.argsort(order)]

    def _rows(self, place: int, rows: Any) -> Outputs:
        """Return rows of one file."""
        logits, labels, features = self._arrays(place)
        logits = logits[rows]
        with name_file_in_errors(self._shards[place].path):
            return Outputs(
                logits.astype(np.float32) if logits.dtype == np.float16 else logits,
                None if labels is None else labels[rows],
                {layer: array[rows] for layer, array in features.items()},
                metadata=self.metadata,
                assume_logits=self.assume_logits,
            )

    def _arrays(self, place: int) -> tuple[Any, Any | None, dict[str, Any]]:
        """Return the arrays of one file.

        A mapped file is mapped anew for every batch: the pages of a map that stays open count as memory of the process.
        """
        if self._read is not None and self._read[0] == place:
            return self._read[1]
        shard = self._shards[place]
        arrays = split_arrays(shard.path, output_files.read(shard.path, verify=False)[0])
        if shard.content != _content(arrays) or shard.checksum != _checksum(shard.path):
            raise ArtefactError(f"{shard.path} was replaced after it was opened. Open the data set again.")
        is_mapped = shard.path.is_dir() or shard.path.suffix == ".safetensors"
        self._read = None if is_mapped else (place, arrays)
        return arrays


def shard_name(name: str, index: int, count: int, suffix: str = ".safetensors") -> str:
    """Return the file name of one of ``count`` shards of the data set ``name``; the first has the index 0.

    Examples
    --------
    >>> shard_name("test", 3, 10)
    'test-00003-of-00010.safetensors'
    """
    if not 0 <= index < count:
        raise ValueError(f"index must lie in 0 ... {count - 1} for {count} shards, got {index}.")
    return f"{name}-{index:05}-of-{count:05}{suffix}"


def shard_of(path: Path) -> str | None:
    """Return the name of the data set of which the file is a shard, or None if it is not named like one."""
    match = _NAME.fullmatch(path.stem)
    return match[1] if match else None


def find_files(source: str | Path | Sequence[str | Path]) -> list[Path]:
    """Return the files of a data set in order; raise if shards are missing or are there twice."""
    if not isinstance(source, (str, Path)):
        files = [Path(path) for path in source]
        if not files:
            raise ValueError("source must hold at least one file, got none.")
        check_shards(files, source="the files", complete=False)
        return files
    path = Path(source)
    if path.is_dir() and not (path / "logits.npy").exists():
        files = [file for file in path.iterdir() if is_outputs(file)]
    elif has_magic(str(source)) and not path.exists():
        anchor = Path(path.anchor)
        files = [file for file in anchor.glob(str(path.relative_to(anchor))) if is_outputs(file)]
    else:
        return [path]
    if not files:
        raise ValueError(f"{source} holds no outputs: expected .safetensors or .npz files, or folders with logits.npy.")
    return check_shards(files, source=str(source))


def is_outputs(path: Path) -> bool:
    """Return whether a file in a folder is one of outputs, by its name."""
    return (path.suffix in SUFFIXES and not path.name.startswith(".")) or (path / "logits.npy").exists()


def check_shards(files: Sequence[Path], *, source: str, complete: bool = True) -> list[Path]:
    """Return the files in the order of their numbers; raise unless they are the shards of one data set, each once."""
    found = {path: _NAME.fullmatch(path.stem) for path in sorted(files, key=lambda path: _natural(path.name))}
    names = {match[1] if match else None for match in found.values()}
    if names == {None} or (not complete and None in names):
        return list(found)
    if len(names) > 1:
        listing = listed(sorted(name or "files without a number" for name in names))
        raise ValueError(f"{source}: the shards are of different data sets, {listing}. Pass a pattern for one of them.")
    by_number: dict[int, Path] = {}
    totals = {int(match[3]) for match in found.values() if match}
    for path, match in found.items():
        number = int(match[2]) if match else 0
        if number in by_number:
            raise ValueError(f"{by_number[number]} and {path} are the same shard. Remove one of them.")
        by_number[number] = path
    if len(totals) > 1:
        raise ValueError(f"{source}: the shards were written by different runs, of {sorted(totals)} shards each.")
    total = totals.pop()
    missing = [str(number) for number in range(total) if number not in by_number]
    if (missing and complete) or max(by_number) >= total:
        raise ValueError(
            f"{source} has {len(by_number)} of {total} shards of {names.pop()}; missing: {listed(missing)}. Write "
            "them, or pass the files as a sequence to go without them."
        )
    return [by_number[number] for number in sorted(by_number)]


def _natural(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", name)]


def _describe(path: Path, verify: bool) -> _Shard:
    arrays, metadata = output_files.read(path, verify=verify)
    split = split_arrays(path, arrays)
    return _Shard(path, int(split[0].shape[0]), _content(split), metadata, _checksum(path))


def _checksum(path: Path) -> str | None:
    return None if path.is_dir() or path.suffix != ".safetensors" else safetensors_file.read_checksum(path)


def _content(arrays: tuple[Any, Any | None, dict[str, Any]]) -> tuple[object, ...]:
    """Return what of a file its shards must have in common, and its number of rows."""
    logits, labels, features = arrays
    widths = tuple((layer, array.shape[1:]) for layer, array in features.items())
    return (logits.shape[1:], labels is not None, widths, logits.shape[0])


def _check_alike(shards: Sequence[_Shard]) -> None:
    """Raise unless the shards are outputs of one classifier, and all different."""
    seen: dict[str, Path] = {}
    for shard in shards:
        if shard.content[:-1] != shards[0].content[:-1]:
            raise ValueError(
                f"{shard.path} differs from {shards[0].path} in its classes, its layers or in having labels: they are "
                "not shards of one data set."
            )
        if shard.checksum is None:
            continue
        if shard.checksum in seen:
            raise ValueError(f"{seen[shard.checksum]} and {shard.path} hold the same data. Remove one of them.")
        seen[shard.checksum] = shard.path
