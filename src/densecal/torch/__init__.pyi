from .calibration import calibrate
from .export import export_onnx
from .extraction import extract
from .features.layers import select_layers
from .features.layout import Layout
from .head.head import CalibrationHead, Details
from .model import CalibratedModel
from .resumable_extraction import extract_to
from .shards import extract_shards

__all__ = [
    "CalibratedModel",
    "CalibrationHead",
    "Details",
    "Layout",
    "calibrate",
    "export_onnx",
    "extract",
    "extract_shards",
    "extract_to",
    "select_layers",
]
