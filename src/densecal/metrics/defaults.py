"""Defaults of the metrics and of every bootstrap."""

from __future__ import annotations

N_BINS = 15
N_RESAMPLES = 300
LEVEL = 0.95
