"""Outputs: a classifier's logits, labels and features, in memory and on disk."""

from __future__ import annotations

from densecal.outputs.outputs import Distances, Outputs, make_outputs
from densecal.outputs.shards import OutputShards

__all__ = ["Distances", "OutputShards", "Outputs", "make_outputs"]
