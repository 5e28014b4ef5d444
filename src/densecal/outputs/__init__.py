"""Outputs: a classifier's logits, labels and features, in memory and on disk."""

from __future__ import annotations

from densecal.outputs.distances import Distances
from densecal.outputs.outputs import Outputs, make_outputs, name_file_in_errors
from densecal.outputs.shards import OutputShards

__all__ = ["Distances", "OutputShards", "Outputs", "make_outputs", "name_file_in_errors"]
