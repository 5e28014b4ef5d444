"""Read files of outputs and check what they hold."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from pathlib import Path

import numpy as np

from densecal.arrays import to_numpy
from densecal.io import output_files
from densecal.outputs.arrays import name_file_in_errors
from densecal.outputs.outputs import Outputs


def check_different(sets: Mapping[str, Outputs], why: str) -> None:
    """Raise if two of the named outputs hold the same logits; ``why`` says what to pass instead."""
    for (name, one), (other, same) in combinations(sets.items(), 2):
        if one.logits.shape == same.logits.shape and np.array_equal(to_numpy(one.logits), to_numpy(same.logits)):
            raise ValueError(f"{name} and {other} hold the same data. {why}")


def read_outputs(path: Path, *, assume_logits: bool = False) -> Outputs:
    """Read outputs and check their logits."""
    outputs = Outputs.load(path, assume_logits=assume_logits)
    with name_file_in_errors(path):
        outputs.checked_logits()
    return outputs


def read_labelled(path: Path, why: str, *, assume_logits: bool = False) -> Outputs:
    """Read outputs; raise if they have no labels."""
    return require_labels(read_outputs(path, assume_logits=assume_logits), path, why)


def require_labels(outputs: Outputs, path: Path, why: str) -> Outputs:
    """Return the outputs if they have labels; otherwise raise with the content of the file and the reason ``why``."""
    if outputs.labels is None:
        held = output_files.listed(list(output_files.read(path)[0]))
        raise ValueError(
            f"{path} has no labels, only {held}: {why} Name the array labels (in a .csv file the column label)."
        )
    return outputs
