"""Calibration of PyTorch classifiers: layer selection, feature extraction, fitting, serving and ONNX export.

Requires PyTorch: ``pip install "densecal[torch]"``.
"""

import lazy_loader as lazy

from densecal.errors import require

require("torch", "torch", "densecal.torch")

__getattr__, __dir__, __all__ = lazy.attach_stub(__name__, __file__)
