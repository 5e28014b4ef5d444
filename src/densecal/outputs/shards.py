"""OutputShards: a data set in many files, which are read when they are used; and the names of such files."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from densecal.arrays import random_rows, row_blocks
from densecal.arrays.checks import check_labels, check_scores_shape
from densecal.errors import ArtefactError
from densecal.io import output_files, safetensors_file
from densecal.io.atomic_files import listed, name_file_in_errors
from densecal.io.output_files import DEFAULT_LAYOUT, FileContent, FileLayout
from densecal.outputs.outputs import BATCH_SIZE, Outputs, Rows

SHARD_SIZE = 8192
"""The default number of samples per file: 65 MB for 1,000 classes and 2,000 features."""
MAP_ROWS = 1 << 16
"""Number of rows after which a file is mapped again."""
_NAME = re.compile(r"(.+)-(\d+)-of-(\d+)")


@dataclass(frozen=True)
class _Shard:
    path: Path
    n_rows: int
    n_classes: int
    has_labels: bool
    widths: Mapping[str, int]
    metadata: Mapping[str, str]
    checksum: str | None

    @property
    def kind(self) -> tuple[object, ...]:
        """What all shards of a data set have in common."""
        return self.n_classes, self.has_labels, tuple(self.widths.items())

    @classmethod
    def of(cls, path: Path, content: FileContent) -> _Shard:
        with name_file_in_errors(path):
            check_scores_shape(content.logits)
        widths = {layer: int(array.shape[1]) for layer, array in content.features.items()}
        stated = safetensors_file.read_checksum(path) if path.is_file() and _is_mapped(path) else None
        n_rows, n_classes = map(int, content.logits.shape)
        return cls(path, n_rows, n_classes, content.labels is not None, widths, content.metadata, stated)


class OutputShards:
    """Outputs in one or many files that are read in batches; `Outputs.open` returns them.

    Safetensors files and folders of ``.npy`` files are memory-mapped. Files of other formats are read one at a time,
    and the last one is kept in memory. A file that is replaced after it was opened is an error.

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
        self, source: str | Path | Sequence[str | Path], layout: FileLayout = DEFAULT_LAYOUT, *, verify: bool = False
    ) -> None:
        self.layout = layout
        self._is_verified = verify
        self._cached: tuple[tuple[int, ...], FileContent] | None = None
        self._shards: list[_Shard] = []
        seen: dict[str, Path] = {}
        for place, path in enumerate(_find_shards(source)):
            content = output_files.read(path, self.layout, verify=verify)
            self.layout = self.layout.following(content)
            self._shards.append(shard := _Shard.of(path, content))
            self._cached = None if _is_mapped(path) else ((place,), content)
            first = self._shards[0]
            if shard.kind != first.kind:
                raise ValueError(
                    f"{path} and {first.path} differ in their classes, their layers or in having labels: they are not "
                    "shards of one data set."
                )
            if shard.checksum is not None:
                if shard.checksum in seen:
                    raise ValueError(f"{seen[shard.checksum]} and {path} hold the same data. Remove one of them.")
                seen[shard.checksum] = path
        self._starts = [0, *accumulate(shard.n_rows for shard in self._shards)]
        self.paths = tuple(shard.path for shard in self._shards)
        self.n_classes, self.has_labels, self.layers = first.n_classes, first.has_labels, tuple(first.widths)
        self.metadata = {
            key: value
            for key, value in first.metadata.items()
            if all(shard.metadata.get(key) == value for shard in self._shards)
        }

    def __array__(self, *_: object, **__: object) -> NDArray[np.float32]:
        raise TypeError("outputs in files are read in parts: fit on shards.sample(n), and predict shards.batches().")

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
                labels = np.array(self._content(place).labels)
                found.append(check_labels(labels, shard.n_rows, self.n_classes))
        return np.concatenate(found)

    @cached_property
    def ids(self) -> NDArray[np.object_] | None:
        """The ids of the samples of all files, or None."""
        ids = self._joined("ids")
        return None if ids is None else ids.astype(object)

    @cached_property
    def partial_labels(self) -> NDArray[np.int64] | None:
        """The labels of all files if some are missing, negative where they are missing; otherwise None."""
        labels: NDArray[np.int64] | None = self._joined("partial_labels")
        return labels

    def _joined(self, name: str) -> Any:
        found = [getattr(self._content(place), name) for place in range(len(self._shards))]
        return None if any(one is None for one in found) else np.concatenate(found)

    def batches(self, batch_size: int = BATCH_SIZE) -> Iterator[Outputs]:
        """Yield the outputs of at most ``batch_size`` rows at a time, in order; no batch spans two files.

        Logits in half precision are converted to float32.
        """
        for place, shard in enumerate(self._shards):
            for rows in row_blocks(shard.n_rows, 1, batch_size):
                yield self._rows(place, rows)

    def parts(self) -> list[tuple[int, OutputShards]]:
        """Return the index of the first sample and the outputs of each file, which other processes can read."""
        parts = list[tuple[int, OutputShards]]()
        for start, path in zip(self._starts, self.paths, strict=False):
            part = OutputShards([path.absolute()], self.layout)
            part._cached = None  # or the contents of all files would be in memory at once
            parts.append((start, part))
        return parts

    def sample(self, size: int, seed: int = 0) -> Outputs:
        """Return at most ``size`` random rows in memory, in their order."""
        rows = random_rows(len(self), size, seed)
        return self.load() if rows is None else self[rows]

    def load(self) -> Outputs:
        """Read everything, compare safetensors files with their checksums, and check the logits.

        One file stays memory-mapped.
        """
        parts = []
        for place, path in enumerate(self.paths):
            parts.append(self._rows(place, slice(0, self._shards[place].n_rows), verify=not self._is_verified))
            with name_file_in_errors(path):
                parts[-1].checked_logits()
        return Outputs.concatenate(parts) if len(parts) > 1 else parts[0]

    def __getitem__(self, rows: Rows) -> Outputs:
        """Return the outputs of the rows given by an index, a slice, an index array or a boolean mask, in memory."""
        if isinstance(rows, (int, np.integer)):
            rows = slice(range(len(self))[int(rows)], range(len(self))[int(rows)] + 1)
        wanted = np.arange(len(self))[rows]
        order = np.argsort(wanted, kind="stable")
        parts = []
        for place, (begin, end) in enumerate(pairwise(np.searchsorted(wanted[order], self._starts))):
            own = wanted[order[begin:end]] - self._starts[place]
            # Rows far from each other touch many pages of a map, so it is not kept open for long.
            blocks = np.split(own, np.flatnonzero(np.diff(own // MAP_ROWS)) + 1)
            parts += [self._rows(place, block) for block in blocks if len(block)]
        found = Outputs.concatenate(parts) if len(parts) > 1 else parts[0]
        found.metadata = dict(self.metadata)
        return found if np.array_equal(order, np.arange(len(order))) else found[np.argsort(order)]

    def _rows(self, place: int, rows: Any, *, verify: bool = False) -> Outputs:
        """Return rows of one file."""
        block = (rows.start if isinstance(rows, slice) else int(rows[0])) // MAP_ROWS
        content = self._content(place, block, verify=verify)
        logits = content.logits[rows]
        with name_file_in_errors(self.paths[place]):
            return Outputs(
                logits.astype(np.float32) if logits.dtype == np.float16 else logits,
                None if content.labels is None else content.labels[rows],
                {layer: array[rows] for layer, array in content.features.items()},
                metadata=self.metadata,
                assume_logits=content.assume_logits,
            )

    def _content(self, place: int, block: int = 0, *, verify: bool = False) -> FileContent:
        """Return the arrays of one file.

        A file is mapped again for every block of rows, because the pages of an open map count as memory of the process.
        """
        shard = self._shards[place]
        key = (place, block, verify) if _is_mapped(shard.path) else (place,)
        if self._cached is None or self._cached[0] != key:
            self._cached = None
            content = output_files.read(shard.path, self.layout, verify=verify)
            if shard != _Shard.of(shard.path, content):
                raise ArtefactError(f"{shard.path} was replaced after it was opened. Open the data set again.")
            self._cached = key, content
        return self._cached[1]


def _is_mapped(path: Path) -> bool:
    return path.is_dir() or path.suffix == ".safetensors"


def shard_name(name: str, index: int, count: int, suffix: str = ".safetensors") -> str:
    """Return the file name of a shard, such as ``test-00003-of-00010.safetensors`` of ``name="test", index=3``."""
    if not 0 <= index < count:
        raise ValueError(f"index must lie in 0 ... {count - 1} for {count} shards, got {index}.")
    return f"{name}-{index:05}-of-{count:05}{suffix}"


def shard_of(path: Path) -> str | None:
    """Return the name of the data set of which the file is a shard, or None if it is not named like one."""
    match = _NAME.fullmatch(path.stem)
    return match[1] if match else None


def group_shards(source: str | Path) -> list[list[Path]]:
    """Return the files of each data set of a folder or a pattern: shards together and in order, other files alone."""
    files = output_files.list_outputs(source)
    # A single file may be one of several shards.
    return _group_shards(files, source, complete=files != [Path(source)])


def _find_shards(source: str | Path | Sequence[str | Path]) -> list[Path]:
    """Return the files of one data set in order; raise for missing shards, duplicates or several data sets."""
    if isinstance(source, (str, Path)):
        groups = group_shards(source)
        names = sorted({shard_of(group[0]) or "files without a number" for group in groups})
        if len(names) > 1:
            found = f"{source} holds shards of different data sets: {listed(names)}"
            raise ValueError(f"{found}. Pass a pattern for one of them.")
        return [path for group in groups for path in group]
    files = [Path(path) for path in source]
    if not files:
        raise ValueError("source must hold at least one file, got none.")
    _group_shards(files, "The sequence of files", complete=False)
    return files


def _group_shards(files: Sequence[Path], source: str | Path, *, complete: bool) -> list[list[Path]]:
    """Return the files of each data set in the order of their numbers; raise unless each shard is there once."""
    groups: dict[str, list[Path]] = defaultdict(list)
    for file in files:
        groups[shard_of(file) or str(file)].append(file)
    for name, group in groups.items():
        found = {path: match for path in group if (match := _NAME.fullmatch(path.stem))}
        if not found:
            continue
        totals = {int(match[3]) for match in found.values()}
        if len(totals) > 1:
            raise ValueError(f"{source} holds shards of different runs, which wrote {sorted(totals)} shards each.")
        numbers = [int(found[path][2]) for path in group]
        total, by_number = totals.pop(), dict(zip(numbers, group, strict=True))
        if len(by_number) < len(group):
            twice = next(path for place, path in enumerate(group) if numbers[place] in numbers[:place])
            raise ValueError(f"{source} holds the shard {twice.stem} twice. Remove one of the files.")
        missing = [number for number in range(total) if number not in by_number]
        if max(by_number) >= total or (missing and complete):
            raise ValueError(
                f"{source} holds {len(by_number)} of {total} shards of {name}; missing: {listed(missing)}. Write them, "
                "or pass the files one by one to go without them."
            )
        groups[name] = [by_number[number] for number in sorted(by_number)]
    return list(groups.values())
