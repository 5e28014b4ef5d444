"""Figures of calibration with matplotlib: ``ax=`` goes in, the axes come out, no global state is touched."""

from __future__ import annotations

from densecal.plots.confidence import confidence_boxplots, confidence_histogram
from densecal.plots.curves import data_efficiency, k_sensitivity, severity_bars, severity_curves
from densecal.plots.layers import layer_importance, layer_weights, temperature_against_distance
from densecal.plots.reliability import reliability_diagram

__all__ = [
    "confidence_boxplots",
    "confidence_histogram",
    "data_efficiency",
    "k_sensitivity",
    "layer_importance",
    "layer_weights",
    "reliability_diagram",
    "severity_bars",
    "severity_curves",
    "temperature_against_distance",
]
