"""Density-aware calibration: the paper's fit on clean data, and the shift fit."""

from densecal.calibrators.dac.method import DAC

__all__ = ["DAC"]
