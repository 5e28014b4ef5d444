"""Outputs: a classifier's logits, labels and features, in memory and on disk."""

from __future__ import annotations

from densecal.outputs.arrays import name_file_in_errors
from densecal.outputs.outputs import Distances, Outputs
from densecal.outputs.reading import check_different, read_labelled, read_outputs, require_labels
from densecal.outputs.shards import OutputShards

__all__ = [
    "Distances",
    "OutputShards",
    "Outputs",
    "check_different",
    "name_file_in_errors",
    "read_labelled",
    "read_outputs",
    "require_labels",
]
