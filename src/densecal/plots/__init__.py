"""Figures of calibration with matplotlib: every function takes ``ax=`` and returns the axes."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
