"""The paper's methods by name, with and without DAC, and their fit on the clean validation set."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import densecal
from densecal.calibrators import DAC_NAME as DAC
from densecal.calibrators import ORACLE, UNCALIBRATED
from densecal.calibrators.base import Calibrator
from densecal.calibrators.registry import parse_method
from densecal.errors import CalibrationWarning
from reproduction.measuring.measurements import VAL, Measurements

MAIN = ("ts", "ets", "irm", "dia", "spl")
ADDITIONAL = ("pts", "ir", "dir")
SMALL_NETWORKS = ("dia", "pts")
"""Methods that train a small network. Rounding decides in which of several nearly equal minima a fit ends."""
PUBLISHED = "published"
"""Part of a method's name: DAC as in the published research code, with the first neighbour and squared distances."""


def with_dac(methods: Iterable[str]) -> tuple[str, ...]:
    """Return the methods alone, after DAC, and after DAC as in the published code."""
    methods = tuple(methods)
    return tuple(f"{before}{method}" for before in ("", f"{DAC}+", f"{PUBLISHED}+") for method in methods)


EVERY_METHOD = (UNCALIBRATED, ORACLE, DAC, *with_dac(MAIN + ADDITIONAL))


def base_of(method: str) -> str:
    """Return the method after DAC: ``"ets"`` for ``"dac+ets"``."""
    return parse_method(method)[-1]


def label_of(method: str) -> str:
    """Return the label of a method in the tables: ``"ETS + DAC"`` for ``"dac+ets"``."""
    if method in (UNCALIBRATED, ORACLE):
        return method.capitalize()
    *before, base = parse_method(method)
    suffix = {(): "", (DAC,): " + DAC", (PUBLISHED,): " + DAC (published code)"}[tuple(before)]
    return f"{base.upper()}{suffix}"


def make_method(method: str) -> Calibrator:
    """Return an unfitted calibrator that takes distances, with the paper's loss for every temperature."""
    first, *others = parse_method(method)
    if first == PUBLISHED:
        calibrator: Calibrator = densecal.Chain(
            densecal.DAC(scores="published_code"), *map(densecal.make_calibrator, others)
        )
    else:
        calibrator = densecal.make_calibrator(method)
    for stage in calibrator.stages:
        if isinstance(stage, (densecal.TemperatureScaling, densecal.EnsembleTemperatureScaling)):
            stage.set_params(loss="brier")
    return calibrator


def neighbour_of(method: str, k: int) -> int:
    """Return the neighbour whose distance a method uses: the first in the published code, else the k-th."""
    return 1 if method.startswith(PUBLISHED) else k


@contextmanager
def quiet_fits() -> Iterator[None]:
    """Ignore warnings: a fit that uses no layer, or does not improve on the logits, is a valid result here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        yield


def fit_method(
    method: str,
    measured: Measurements,
    *,
    k: int | None = None,
    layers: Sequence[str] | None = None,
    rows: Any | None = None,
) -> Calibrator:
    """Fit a method on the clean validation set, or on some of its rows.

    By default DAC uses the classifier's k and all measured layers.
    """
    k = neighbour_of(method, measured.about.k if k is None else k)
    val = measured.outputs(VAL, k, layers)
    with quiet_fits():
        return make_method(method).fit(val if rows is None else val[rows])
