"""The paper's methods by name, with and without DAC, and how each is fitted on the clean validation set."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

from densecal.calibrators.base import Calibrator
from densecal.calibrators.names import ORACLE, UNCALIBRATED
from densecal.errors import CalibrationWarning
from reproduction.measurements import VAL, Measurements

MAIN = ("ts", "ets", "irm", "dia", "spl")
ADDITIONAL = ("pts", "ir", "dir")
DAC = "dac"
PUBLISHED = "published"
"""In a method's name: DAC as the published research code computes it, first neighbour and squared distance."""
EVERY_METHOD = (
    UNCALIBRATED,
    ORACLE,
    DAC,
    *(f"{before}{method}" for method in MAIN + ADDITIONAL for before in ("", "dac+", "published+")),
)
TOP1_ONLY = "spl"
"""The method that the paper reports no distribution measures for, because it calibrates the top-1 score alone."""


def label_of(method: str) -> str:
    """Write a method's name as the tables show it.

    Examples
    --------
    >>> label_of("dac+ets"), label_of("published+ets"), label_of("ts")
    ('ETS + DAC', 'ETS + DAC (published code)', 'TS')
    """
    if method in (UNCALIBRATED, ORACLE):
        return method.capitalize()
    before, _, base = method.rpartition("+")
    suffix = {"": "", DAC: " + DAC", PUBLISHED: " + DAC (published code)"}[before]
    return f"{base.upper()}{suffix}"


def make_method(method: str) -> Calibrator:
    """Make an unfitted calibrator that takes distances.

    Examples
    --------
    >>> make_method("published+ts").short_name
    'dac+ts'
    """
    from densecal.calibrators.chain import Chain
    from densecal.calibrators.dac import DAC as DensityAware  # noqa: N811
    from densecal.calibrators.registry import make_calibrator

    before, _, base = method.rpartition("+")
    if before == PUBLISHED:
        return Chain(DensityAware(scores="published_code"), make_calibrator(base))
    return make_calibrator(method)


def neighbour_of(method: str, k: int) -> int:
    """Return which neighbour a method measures: the published code takes the first, whatever k says.

    Examples
    --------
    >>> neighbour_of("published+ts", 50), neighbour_of("dac+ts", 50)
    (1, 50)
    """
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
        As in `EVERY_METHOD`, but neither uncalibrated nor oracle, which have nothing to fit.
    measured : Measurements
    k : int, optional
        The neighbour; the classifier's own without it.
    layers : sequence of str, optional
        The layers DAC may use; all that were measured without it.
    rows : array of int, optional
        Which validation samples to fit on; all without it.
    """
    k = neighbour_of(method, measured.about.k if k is None else k)
    part = measured.sets[VAL] if rows is None else measured.sets[VAL].rows(rows)
    distances = measured.distances(VAL, k, layers)
    distances = distances if rows is None else distances[rows]
    calibrator = make_method(method)
    with warnings.catch_warnings():
        # A fit that finds no use for a layer, or none better than the logits, is a result here, not a surprise.
        warnings.simplefilter("ignore", CalibrationWarning)
        return calibrator.fit(part.logits, part.labels, distances=distances)
