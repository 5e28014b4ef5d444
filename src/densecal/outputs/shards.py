"""OutputShards: outputs in many files, one data set, read when they are used."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from densecal.arrays import row_blocks, widen
from densecal.arrays.checks import check_labels, check_scores_shape
from densecal.errors import ArtefactError
from densecal.io import output_files, safetensors_file
from densecal.io.file_content import FileContent
from densecal.io.file_layout import DEFAULT_LAYOUT, FileLayout
from densecal.io.shard_files import find_shards
from densecal.outputs.distances import Rows
from densecal.outputs.outputs import BATCH_SIZE, Outputs, make_outputs, name_file_in_errors, random_rows

MAP_ROWS = 1 << 16
"""A file is mapped anew after so many rows."""


@dataclass(frozen=True)
class _Shard:
    path: Path
    contents: _Contents
    metadata: Mapping[str, str]
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
        self,
        source: str | Path | Sequence[str | Path],
        layout: FileLayout = DEFAULT_LAYOUT,
        *,
        verify: bool = False,
    ) -> None:
        self.layout = layout
        self._cached: tuple[tuple[int, int], FileContent] | None = None
        self._shards: list[_Shard] = []
        for path in find_shards(source):
            content = output_files.read(path, self.layout, verify=verify)
            self.layout = self.layout.following(content.classes, content.probability_floor)
            self._shards.append(_Shard(path, _describe(content), content.metadata, _checksum(path)))
        _check_alike(self._shards)
        first = self._shards[0]
        self._starts = [0, *accumulate(shard.contents.n_rows for shard in self._shards)]
        self.paths = tuple(shard.path for shard in self._shards)
        self.n_classes, self.has_labels = first.contents.n_classes, first.contents.has_labels
        self.layers = tuple(layer for layer, _ in first.contents.widths)
        self.metadata = {
            key: value
            for key, value in first.metadata.items()
            if all(shard.metadata.get(key) == value for shard in self._shards)
        }

    @property
    def assume_logits(self) -> bool:
        """Whether logits that look like probabilities are accepted."""
        return self.layout.assume_logits or self.layout.probabilities

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
                found.append(check_labels(labels, shard.contents.n_rows, self.n_classes))
        return np.concatenate(found)

    def batches(self, batch_size: int = BATCH_SIZE) -> Iterator[Outputs]:
        """Yield the outputs of at most ``batch_size`` rows at a time, in order; no batch spans two files.

        Logits in half precision are converted to float32.
        """
        for place, shard in enumerate(self._shards):
            for rows in row_blocks(shard.contents.n_rows, 1, batch_size):
                yield self._rows(place, rows)

    def parts(self) -> list[tuple[int, OutputShards]]:
        """Return the outputs of each file, after the number of its first sample; other processes may read them."""
        starts = self._starts[:-1]
        return [
            (start, OutputShards([path.absolute()], self.layout))
            for path, start in zip(self.paths, starts, strict=True)
        ]

    def sample(self, size: int, seed: int = 0) -> Outputs:
        """Return at most ``size`` random rows in memory, in their order."""
        rows = random_rows(len(self), size, seed)
        return self.load() if rows is None else self[rows]

    def load(self) -> Outputs:
        """Read everything into memory."""
        return self[:]

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

    def _rows(self, place: int, rows: Any) -> Outputs:
        """Return rows of one file."""
        content = self._content(place, (rows.start if isinstance(rows, slice) else int(rows[0])) // MAP_ROWS)
        logits = content.logits[rows]
        part = replace(
            content,
            logits=widen(logits) if logits.dtype == np.float16 else logits,
            labels=None if content.labels is None else content.labels[rows],
            features={layer: array[rows] for layer, array in content.features.items()},
            metadata=self.metadata,
        )
        return make_outputs(self.paths[place], part, assume_logits=self.assume_logits)

    def _content(self, place: int, block: int = 0) -> FileContent:
        """Return the arrays of one file.

        A mapped file is mapped anew for every block of rows: the pages of a map that stays open count as memory of the
        process.
        """
        shard = self._shards[place]
        is_mapped = shard.path.is_dir() or shard.path.suffix == ".safetensors"
        key = (place, block if is_mapped else 0)
        if self._cached is not None and self._cached[0] == key:
            return self._cached[1]
        self._cached = None
        content = output_files.read(shard.path, self.layout, verify=False)
        if shard.contents != _describe(content) or shard.checksum != _checksum(shard.path):
            raise ArtefactError(f"{shard.path} was replaced after it was opened. Open the data set again.")
        self._cached = (key, content)
        return content


class _Contents(NamedTuple):
    """What the shards of a data set have in common, and their rows."""

    n_classes: int
    has_labels: bool
    widths: tuple[tuple[str, int], ...]
    n_rows: int


def _describe(content: FileContent) -> _Contents:
    check_scores_shape(content.logits)
    widths = tuple((layer, int(array.shape[1])) for layer, array in content.features.items())
    return _Contents(int(content.logits.shape[1]), content.labels is not None, widths, int(content.logits.shape[0]))


def _checksum(path: Path) -> str | None:
    return None if path.is_dir() or path.suffix != ".safetensors" else safetensors_file.read_checksum(path)


def _check_alike(shards: Sequence[_Shard]) -> None:
    """Raise unless the shards are outputs of one classifier, and all different."""
    seen: dict[str, Path] = {}
    for shard in shards:
        if shard.contents[:-1] != shards[0].contents[:-1]:
            raise ValueError(
                f"{shard.path} and {shards[0].path} differ in their classes, their layers or in having labels: they "
                "are not shards of one data set."
            )
        if shard.checksum is not None and shard.checksum in seen:
            raise ValueError(f"{seen[shard.checksum]} and {shard.path} hold the same data. Remove one of them.")
        if shard.checksum is not None:
            seen[shard.checksum] = shard.path
