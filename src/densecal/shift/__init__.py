"""Data under shift: the 18 published corruptions, generic perturbations, and readers of data sets.

Names are imported on first use: the tables need no torch, and a reader imports only what it reads with.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
