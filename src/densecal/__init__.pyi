from . import evaluation, metrics, plots, report, shift
from .calibrators.base import Calibrator
from .calibrators.citation import Citation
from .calibrators.dac import DAC
from .calibrators.intra_order import IntraOrderPreserving
from .calibrators.isotonic import MulticlassIsotonic, OneVsRestIsotonic
from .calibrators.matrix_scaling import MatrixScaling
from .calibrators.one_vs_rest import BetaCalibration, PlattScaling
from .calibrators.parameterized_temperature import ParameterizedTemperatureScaling
from .calibrators.registry import METHODS, Chain, make_calibrator
from .calibrators.spline import SplineCalibration
from .calibrators.state import load
from .calibrators.temperature import EnsembleTemperatureScaling, TemperatureScaling
from .calibrators.vector_scaling import VectorScaling
from .density.bank import FeatureBank
from .errors import ArtefactError, CalibrationWarning
from .estimation.accuracy_estimate import AccuracyEstimate
from .metrics import evaluate
from .monitor.monitor import Monitor
from .outputs import Distances, Outputs, OutputShards
from .sklearn import CalibratedClassifier

__version__: str

__all__ = [
    "DAC",
    "METHODS",
    "AccuracyEstimate",
    "ArtefactError",
    "BetaCalibration",
    "CalibratedClassifier",
    "CalibrationWarning",
    "Calibrator",
    "Chain",
    "Citation",
    "Distances",
    "EnsembleTemperatureScaling",
    "FeatureBank",
    "IntraOrderPreserving",
    "MatrixScaling",
    "Monitor",
    "MulticlassIsotonic",
    "OneVsRestIsotonic",
    "OutputShards",
    "Outputs",
    "ParameterizedTemperatureScaling",
    "PlattScaling",
    "SplineCalibration",
    "TemperatureScaling",
    "VectorScaling",
    "evaluate",
    "evaluation",
    "load",
    "make_calibrator",
    "metrics",
    "plots",
    "report",
    "shift",
]
