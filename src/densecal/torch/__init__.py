"""From a PyTorch model to a calibrated model: which layers to read, reading them, serving with them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

_HOME = {
    "CalibratedModel": "densecal.torch.model",
    "CalibrationHead": "densecal.torch.head.head",
    "Details": "densecal.torch.head.head",
    "Layout": "densecal.torch.features.layout",
    "calibrate": "densecal.torch.calibration",
    "export_onnx": "densecal.torch.export",
    "extract": "densecal.torch.extraction",
    "extract_to": "densecal.torch.stream",
    "select_layers": "densecal.torch.features.layers",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'densecal.torch' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
