"""Figures of calibration with matplotlib: every function draws into ``ax=``, or a new figure, and returns the axes."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
