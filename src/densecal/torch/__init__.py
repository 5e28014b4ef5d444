"""Calibration of PyTorch classifiers: layer selection, feature extraction, fitting, serving and ONNX export.

Requires PyTorch: ``pip install "densecal[torch]"``.
"""

from importlib.util import find_spec

import lazy_loader as lazy

if find_spec("torch") is None:
    raise ImportError('densecal.torch needs PyTorch, which is not installed: pip install "densecal[torch]".')

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
