"""Read files of outputs and check what they hold."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from pathlib import Path
from typing import TypeVar

import numpy as np

from densecal.arrays import row_blocks, to_numpy
from densecal.io import output_files
from densecal.outputs.arrays import name_file_in_errors
from densecal.outputs.outputs import BATCH_SIZE, Outputs
from densecal.outputs.shards import OutputShards

Data = TypeVar("Data", Outputs, OutputShards)


def check_different(sets: Mapping[str, Outputs | OutputShards], why: str) -> None:
    """Raise if two of the named outputs hold the same logits; ``why`` says what to pass instead."""
    for (name, one), (other, same) in combinations(sets.items(), 2):
        if len(one) == len(same) and all(_equal(one[rows], same[rows]) for rows in row_blocks(len(one), 1, BATCH_SIZE)):
            raise ValueError(f"{name} and {other} hold the same data. {why}")


def _equal(one: Outputs, other: Outputs) -> bool:
    return np.array_equal(to_numpy(one.logits), to_numpy(other.logits))


def read_outputs(path: Path, *, assume_logits: bool = False) -> Outputs:
    """Read outputs and check their logits."""
    outputs = Outputs.load(path, assume_logits=assume_logits)
    with name_file_in_errors(path):
        outputs.checked_logits()
    return outputs


def read_labelled(path: Path, why: str, *, assume_logits: bool = False) -> Outputs:
    """Read outputs; raise if they have no labels."""
    return require_labels(read_outputs(path, assume_logits=assume_logits), path, why)


def require_labels(outputs: Data, path: Path, why: str) -> Data:
    """Return the outputs if they have labels; otherwise raise with the content of the file and the reason ``why``."""
    if not outputs.has_labels:
        held = output_files.listed(list(output_files.read(path)[0]))
        raise ValueError(
            f"{path} has no labels, only {held}: {why} Name the array labels (in a .csv file the column label)."
        )
    return outputs
