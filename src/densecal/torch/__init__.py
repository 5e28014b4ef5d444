"""Calibration of PyTorch classifiers: layer selection, feature extraction, fitting, serving and ONNX export.

Requires PyTorch: ``pip install "densecal[torch]"``.
"""

import lazy_loader as lazy

_attached, __dir__, __all__ = lazy.attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    try:
        return _attached(name)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError(f'densecal.torch.{name} needs PyTorch: pip install "densecal[torch]".') from error
