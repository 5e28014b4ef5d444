"""Data under shift: the 18 published corruptions, generic perturbations and readers of data sets.

Names are imported on first use, so the tables do not import torch and a reader imports only its dependencies.
"""

import lazy_loader as lazy

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
