"""What calibration costs: the fit's steps in seconds, and milliseconds a sample at inference."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from densecal.progress import track
from reproduction.measurements import CLEAN, VAL, Measurements
from reproduction.methods import DAC, fit_method

if TYPE_CHECKING:
    import pandas as pd

COST_METHODS = (DAC, "dia", "ets", "spl")
"""The paper's choice."""


def seconds_of(action: Callable[[], object], repeats: int = 3) -> float:
    """Return the fastest of a few runs, in seconds.

    Examples
    --------
    >>> seconds_of(lambda: sum(range(10))) < 1
    True
    """
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        action()
        best = min(best, time.perf_counter() - start)
    return best


def optimisation_cost(measured: Measurements, methods: Sequence[str] = COST_METHODS) -> pd.DataFrame:
    """Time the third step alone, the fit, and what a fitted method adds to a sample's inference.

    Columns: method, fit_seconds, microseconds_a_sample (the calibration itself, after logits and distances are there).
    """
    import pandas as pd

    k = measured.about.k
    test = measured.condition(CLEAN, k)
    found = []
    for method in track(methods, "timing"):
        fit = seconds_of(partial(fit_method, method, measured), repeats=1)
        calibrator = fit_method(method, measured)
        apply = seconds_of(partial(calibrator.predict_proba, test.outputs.logits, **test.density_inputs()))
        found.append((method, fit, 1e6 * apply / len(test.outputs)))
    return pd.DataFrame(found, columns=["method", "fit_seconds", "microseconds_a_sample"])


def whole_cost(
    network: Any,
    bank_images: Any,
    val_images: Any,
    measured: Measurements,
    *,
    layers: Sequence[str],
    k: int,
    batch: int = 500,
    repeats: int = 50,
) -> pd.DataFrame:
    """Time all three steps of the paper's cost table, and one sample's whole way through network and calibrator.

    Parameters
    ----------
    network : nn.Module
        The classifier, on the device to measure.
    bank_images, val_images : float tensors (N, 3, H, W)
        Normalised training and validation images.
    measured : Measurements
        Logits and distances to fit on.
    layers, k
        What DAC reads, and which neighbour.

    Returns
    -------
    DataFrame
        Columns method, train_features, validation_outputs, optimisation, total (seconds), and inference (ms a sample).
    """
    import pandas as pd

    from densecal.density.bank import FeatureBank
    from densecal.torch import extract
    from densecal.torch.extraction import Extraction, as_outputs

    chosen = [*layers, "logits"]
    timer = _Stopwatch()
    train = timer("train_features", lambda: extract(network, bank_images.split(batch), chosen, progress=False))
    bank = FeatureBank(train.features, k=k)
    plain = timer("outputs", lambda: extract(network, val_images.split(batch), ["logits"], progress=False))
    val = timer("features", lambda: extract(network, val_images.split(batch), chosen, progress=False))
    timer("neighbours", lambda: bank.distances(val.features))
    found = []
    one = val_images[:1]
    # Layers are found once and not timed: a served model knows its own.
    readers = {dense: Extraction(network, chosen if dense else ["logits"]) for dense in (True, False)}
    for reader in readers.values():
        list(reader.pieces([val_images[:2]], progress=False))
    for method in COST_METHODS:
        dense = method == DAC
        fit = seconds_of(partial(fit_method, method, measured), repeats=1)
        calibrator = fit_method(method, measured)

        def run(c: Any = calibrator, dense: bool = dense) -> None:
            said = as_outputs(list(readers[dense].pieces([one], progress=False)), readers[dense].layers)
            distances = bank.distances(said.features) if dense else None
            c.predict_proba(said.logits, distances=distances)

        steps = (
            timer.seconds["train_features"] if dense else float("nan"),
            timer.seconds["features"] + timer.seconds["neighbours"] if dense else timer.seconds["outputs"],
            fit,
        )
        inference = np.array([seconds_of(run, repeats=1) for _ in range(repeats)]) * 1000
        found.append((method, *steps, float(np.nansum(steps)), float(inference.min())))
    if len(plain) != len(measured.sets[VAL].logits):
        raise ValueError("val_images must be the images that were measured as the validation set.")
    names = ["method", "train_features", "validation_outputs", "optimisation", "total", "inference_ms"]
    return pd.DataFrame(found, columns=names)


class _Stopwatch:
    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def __call__(self, name: str, action: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        result = action()
        self.seconds[name] = time.perf_counter() - start
        return result
