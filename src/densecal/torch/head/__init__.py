"""A calibrator as a torch module."""
