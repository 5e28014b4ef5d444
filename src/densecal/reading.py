"""Read files of outputs whose columns or arrays may have any names: one file, or the shards of a data set."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from densecal.arrays import row_blocks, to_numpy
from densecal.errors import CalibrationWarning, listed
from densecal.io import output_files
from densecal.io.file_layout import DEFAULT_LAYOUT, FileLayout
from densecal.io.shard_files import group_shards, list_outputs
from densecal.outputs import Outputs, OutputShards, make_outputs, name_file_in_errors
from densecal.outputs.outputs import BATCH_SIZE
from densecal.progress import track

Data = TypeVar("Data", bound=Outputs | OutputShards)


class LoadedFile(NamedTuple):
    """The outputs of a file, and what only whoever writes a result about them needs."""

    outputs: Outputs
    ids: Any
    classes: tuple[str, ...]
    probability_floor: float | None


def read_file(path: str | Path, layout: FileLayout = DEFAULT_LAYOUT) -> LoadedFile:
    """Read one file or folder of arrays, and check its logits."""
    content = output_files.read(path, layout)
    # The logarithms of probabilities are logits, whatever they look like.
    outputs = make_outputs(path, content, assume_logits=layout.assume_logits or layout.probabilities)
    with name_file_in_errors(path):
        outputs.checked_logits()
    return LoadedFile(outputs, content.ids, content.classes, content.probability_floor)


def read_shards(
    paths: Sequence[Path], layout: FileLayout = DEFAULT_LAYOUT, *, max_samples: int | None = None
) -> LoadedFile:
    """Read the files of one data set; the first says what the classes are and what stands for a probability of zero.

    Of more than ``max_samples`` a random sample is read, without ids.
    """
    if max_samples is not None:
        shards = OutputShards(paths, layout)
        if len(shards) > max_samples:
            outputs = shards.sample(max_samples)
            used = f"{max_samples:,} random ones of {len(shards):,} samples are used. To use more: --max-samples."
            warnings.warn(f"{listed([str(path) for path in paths], 2)}: {used}", CalibrationWarning, stacklevel=2)
            with name_file_in_errors(paths[0]):
                outputs.checked_logits()
            return LoadedFile(outputs, None, shards.layout.classes, shards.layout.probability_floor)
    loaded: list[LoadedFile] = []
    for path in track(paths, "reading") if len(paths) > 1 else paths:
        loaded.append(read_file(path, layout))
        layout = layout.following(loaded[0].classes, loaded[0].probability_floor)
    first = loaded[0]
    if len(loaded) == 1:
        return first
    with name_file_in_errors(listed([str(path) for path in paths])):
        outputs = Outputs.concatenate([one.outputs for one in loaded])
    ids = None if first.ids is None else np.concatenate([one.ids for one in loaded])
    return first._replace(outputs=outputs, ids=ids)


def read_outputs(path: str | Path, layout: FileLayout = DEFAULT_LAYOUT) -> Outputs:
    """Read the outputs of one file, and check their logits."""
    return read_file(path, layout).outputs


def require_labels(outputs: Data, path: str | Path, why: str) -> Data:
    """Return the outputs if they have labels; otherwise raise with the content of the file and the reason ``why``."""
    if not outputs.has_labels:
        names = listed(output_files.array_names(Path(path)))
        raise ValueError(
            f"{path} has no labels{names and f', only {names}'}: {why} Name the array labels (in a table the column "
            "label), or say which it is: --labels NAME."
        )
    return outputs


def expand(sources: Sequence[Path]) -> list[Path]:
    """Return the files of folders, and of patterns that no shell has expanded, in order; no shard may be missing."""
    found = (group_shards(list_outputs(source), source) for source in sources)
    return [file for groups in found for group in groups for file in group]


def check_different(sets: Mapping[str, Outputs | OutputShards], why: str) -> None:
    """Raise if two of the named outputs hold the same logits; ``why`` says what to pass instead."""
    for (name, one), (other, same) in combinations(sets.items(), 2):
        if len(one) == len(same) and all(_equal(one[rows], same[rows]) for rows in row_blocks(len(one), 1, BATCH_SIZE)):
            raise ValueError(f"{name} and {other} hold the same data. {why}")


def _equal(one: Outputs, other: Outputs) -> bool:
    return np.array_equal(to_numpy(one.logits), to_numpy(other.logits))
