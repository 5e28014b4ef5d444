"""Metrics of calibration and out-of-domain detection, with bootstrap intervals.

Metrics are functions of (probabilities, labels), of (confidence, correct), or of (in_domain, out_of_domain). They take
NumPy arrays or torch tensors on any device and return a Python float.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
