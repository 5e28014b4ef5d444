"""Every method under its short name, and calibrators made from names such as ``dac+ets``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from densecal.calibrators.base import Calibrator
from densecal.calibrators.chain import Chain
from densecal.calibrators.dac import DAC
from densecal.calibrators.ensemble_temperature import EnsembleTemperatureScaling
from densecal.calibrators.intra_order import IntraOrderPreserving
from densecal.calibrators.isotonic import MulticlassIsotonic, OneVsRestIsotonic
from densecal.calibrators.matrix_scaling import MatrixScaling
from densecal.calibrators.parameterized_temperature import ParameterizedTemperatureScaling
from densecal.calibrators.spline import SplineCalibration
from densecal.calibrators.temperature import TemperatureScaling
from densecal.calibrators.vector_scaling import VectorScaling
from densecal.density.bank import FeatureBank

METHODS: Mapping[str, type[Calibrator]] = {
    method.short_name: method
    for method in (
        DAC,
        TemperatureScaling,
        EnsembleTemperatureScaling,
        MulticlassIsotonic,
        OneVsRestIsotonic,
        SplineCalibration,
        ParameterizedTemperatureScaling,
        MatrixScaling,
        VectorScaling,
        IntraOrderPreserving,
    )
}
"""Short name -> class."""


def make_calibrator(name: str, *, bank: FeatureBank | None = None) -> Calibrator:
    """Make a calibrator from its short name, or a chain from names joined by +.

    Parameters
    ----------
    name : str
        ``ts ets irm ir spl pts dir vs dia``, ``dac``, or ``dac+`` any of them.
    bank : FeatureBank, optional
        Training features for DAC; without it DAC takes ``distances=``.

    Examples
    --------
    >>> make_calibrator("ts")
    TemperatureScaling()
    >>> make_calibrator("dac+spl").short_name
    'dac+spl'
    """
    stages = list(_make_stages(name, bank))
    return stages[0] if len(stages) == 1 else Chain(*stages)


def _make_stages(name: str, bank: FeatureBank | None) -> Iterator[Calibrator]:
    for part in name.lower().split("+"):
        method = METHODS.get(part.strip())
        if method is None:
            close = get_close_matches(part.strip(), METHODS, n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise ValueError(
                f"There is no calibration method {part.strip()!r}.{hint} The methods are {', '.join(METHODS)}; join "
                "them with +, as in 'dac+ets'."
            )
        yield method(bank=bank) if issubclass(method, DAC) else method()
