"""densecal: density-aware calibration. Confidence that stays honest when the data moves.

The whole public API is the table below; a name's module is imported when the name is first used, so that
``import densecal`` is fast and never imports torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from densecal import metrics as metrics
    from densecal import plots as plots
    from densecal.calibrators.base import Calibrator as Calibrator
    from densecal.calibrators.chain import Chain as Chain
    from densecal.calibrators.citation import Paper as Paper
    from densecal.calibrators.dac import DAC as DAC
    from densecal.calibrators.ensemble_temperature import EnsembleTemperatureScaling as EnsembleTemperatureScaling
    from densecal.calibrators.intra_order import IntraOrderPreserving as IntraOrderPreserving
    from densecal.calibrators.isotonic import MulticlassIsotonic as MulticlassIsotonic
    from densecal.calibrators.isotonic import OneVsRestIsotonic as OneVsRestIsotonic
    from densecal.calibrators.matrix_scaling import MatrixScaling as MatrixScaling
    from densecal.calibrators.parameterized_temperature import (
        ParameterizedTemperatureScaling as ParameterizedTemperatureScaling,
    )
    from densecal.calibrators.registry import METHODS as METHODS
    from densecal.calibrators.registry import make_calibrator as make_calibrator
    from densecal.calibrators.spline import SplineCalibration as SplineCalibration
    from densecal.calibrators.temperature import TemperatureScaling as TemperatureScaling
    from densecal.calibrators.vector_scaling import VectorScaling as VectorScaling
    from densecal.density.bank import FeatureBank as FeatureBank
    from densecal.errors import ArtefactError as ArtefactError
    from densecal.errors import CalibrationWarning as CalibrationWarning
    from densecal.io.artefact import load as load
    from densecal.metrics import evaluate as evaluate
    from densecal.outputs import Outputs as Outputs
    from densecal.sklearn import CalibratedClassifier as CalibratedClassifier

__version__ = "0.1.0"

_HOME = {
    "Outputs": "densecal.outputs",
    "FeatureBank": "densecal.density.bank",
    "Calibrator": "densecal.calibrators.base",
    "Chain": "densecal.calibrators.chain",
    "DAC": "densecal.calibrators.dac.method",
    "TemperatureScaling": "densecal.calibrators.temperature",
    "EnsembleTemperatureScaling": "densecal.calibrators.ensemble_temperature",
    "OneVsRestIsotonic": "densecal.calibrators.isotonic",
    "MulticlassIsotonic": "densecal.calibrators.isotonic",
    "SplineCalibration": "densecal.calibrators.spline",
    "ParameterizedTemperatureScaling": "densecal.calibrators.parameterized_temperature",
    "MatrixScaling": "densecal.calibrators.matrix_scaling",
    "VectorScaling": "densecal.calibrators.vector_scaling",
    "IntraOrderPreserving": "densecal.calibrators.intra_order",
    "make_calibrator": "densecal.calibrators.registry",
    "METHODS": "densecal.calibrators.registry",
    "CalibratedClassifier": "densecal.sklearn",
    "load": "densecal.io.artefact",
    "evaluate": "densecal.metrics",
    "Paper": "densecal.calibrators.citation",
    "ArtefactError": "densecal.errors",
    "CalibrationWarning": "densecal.errors",
}
_SUBMODULES = ("metrics", "plots", "report", "shift", "torch")

__all__ = [*sorted(_HOME), "metrics", "plots"]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    if name in _SUBMODULES:
        return import_module(f"densecal.{name}")
    raise AttributeError(f"module 'densecal' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
