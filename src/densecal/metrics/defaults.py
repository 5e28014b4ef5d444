"""Defaults of the metrics and of every bootstrap."""

from __future__ import annotations

N_BINS = 15
"""Default number of bins."""
N_RESAMPLES = 300
"""Default number of bootstrap resamples."""
LEVEL = 0.95
"""Default coverage of bootstrap intervals."""
