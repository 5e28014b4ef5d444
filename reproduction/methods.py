"""The paper's methods by name, with and without DAC, and how each is fitted on the clean validation set."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import densecal
from densecal.calibrators.base import Calibrator
from densecal.calibrators.names import DAC, ORACLE, UNCALIBRATED
from densecal.errors import CalibrationWarning
from reproduction.measuring.measurements import VAL, Measurements

MAIN = ("ts", "ets", "irm", "dia", "spl")
ADDITIONAL = ("pts", "ir", "dir")
PUBLISHED = "published"
"""In a method's name: DAC as the published research code computes it, first neighbour and squared distance."""


def with_dac(methods: Iterable[str]) -> tuple[str, ...]:
    """Return methods, the same after DAC, and the same after DAC as the published code computes it."""
    methods = tuple(methods)
    return tuple(f"{before}{method}" for before in ("", f"{DAC}+", f"{PUBLISHED}+") for method in methods)


EVERY_METHOD = (UNCALIBRATED, ORACLE, DAC, *with_dac(MAIN + ADDITIONAL))


def label_of(method: str) -> str:
    """Return a method's name as the tables show it: ``"dac+ets"`` is ``"ETS + DAC"``."""
    if method in (UNCALIBRATED, ORACLE):
        return method.capitalize()
    before, _, base = method.rpartition("+")
    suffix = {"": "", DAC: " + DAC", PUBLISHED: " + DAC (published code)"}[before]
    return f"{base.upper()}{suffix}"


def make_method(method: str) -> Calibrator:
    """Return an unfitted calibrator that takes distances."""
    before, _, base = method.rpartition("+")
    if before == PUBLISHED:
        return densecal.Chain(densecal.DAC(scores="published_code"), densecal.make_calibrator(base))
    return densecal.make_calibrator(method)


def neighbour_of(method: str, k: int) -> int:
    """Return which neighbour a method measures: the published code takes the first, whatever k is."""
    return 1 if method.startswith(PUBLISHED) else k


def fit_method(
    method: str,
    measured: Measurements,
    *,
    k: int | None = None,
    layers: Sequence[str] | None = None,
    rows: Any | None = None,
) -> Calibrator:
    """Fit a method on the clean validation set.

    Parameters
    ----------
    method : str
        One of `EVERY_METHOD`, but neither uncalibrated nor oracle.
    measured : Measurements
    k : int, optional
        The neighbour; by default the classifier's.
    layers : sequence of str, optional
        The layers DAC uses; by default all that were measured.
    rows : array of int, optional
        The validation samples to fit on; by default all.
    """
    k = neighbour_of(method, measured.about.k if k is None else k)
    val = measured.outputs(VAL, k, layers)
    with warnings.catch_warnings():
        # A fit that finds no use for a layer, or none better than the logits, is a result here.
        warnings.simplefilter("ignore", CalibrationWarning)
        return make_method(method).fit(val if rows is None else val[rows])
