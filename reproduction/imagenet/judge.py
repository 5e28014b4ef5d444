"""Fit every method on clean validation images and their perturbed copies, and evaluate it under corruptions."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

import densecal
from reproduction.imagenet.compact_logits import expand
from reproduction.imagenet.images import N_FIT
from reproduction.imagenet.measure import NEAREST
from reproduction.measuring.measurements import PERTURBED, VAL, MeasuredSet, Measurements
from reproduction.methods import quiet_fits
from reproduction.natural.judge import METHODS as OTHERS
from reproduction.natural.judge import Fitted, fit_all
from reproduction.studies.corruptions import judge_conditions
from reproduction.studies.estimation import shifted_domains

NEAREST_ROW = f"dac, k = {NEAREST}"
METHODS = (*OTHERS[: OTHERS.index("dac") + 1], NEAREST_ROW, *OTHERS[OTHERS.index("dac") + 1 :])
SETTINGS = {"train": ("train", False), "held-out": ("held-out", False), "train, fit on more": ("train", True)}
"""The bank, and whether the held-out images, which a bank of training images leaves free, are used for the fit."""


def with_bank(measured: Measurements, bank: str, more: bool) -> Measurements:
    """Return the measurements with the distances to one bank, and the images to fit on."""
    columns = [number for number, layer in enumerate(measured.layers) if layer.startswith(f"{bank}/")]
    sets = {}
    for name, whole in measured.sets.items():
        kept = slice(None)
        if not more and (name == VAL or name.startswith(PERTURBED)):
            kept = slice(len(whole) * N_FIT // (N_FIT + 1))
        sets[name] = _part(whole, kept, columns)
    layers = tuple(measured.layers[column].removeprefix(f"{bank}/") for column in columns)
    return Measurements(measured.classifier, layers, measured.ks, sets)


def _part(whole: MeasuredSet, kept: slice, columns: Sequence[int]) -> MeasuredSet:
    return MeasuredSet(lambda: whole.logits[kept], lambda: whole.distances[kept][:, columns], whole.labels[kept])


def fit_methods(measured: Measurements) -> Fitted:
    """Return the fitted methods; the paper's DAC also with the nearest row, which suits a bank of 1,000 images."""
    fitted = fit_all(measured, shifted_domains(measured))
    with quiet_fits():
        nearest = densecal.make_calibrator("dac").fit(measured.outputs(VAL, NEAREST))
    return [*fitted, (NEAREST, {NEAREST_ROW: nearest})]


def judge(stored: Measurements) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return one row per bank, method and condition; and the means over severities, with intervals."""
    sets = {name: expand(one) for name, one in stored.sets.items()}
    every = Measurements(stored.classifier, stored.layers, stored.ks, sets)
    found = []
    for setting, (bank, more) in SETTINGS.items():
        measured = with_bank(every, bank, more)
        tables = judge_conditions(measured, fit_methods(measured), METHODS)
        for table in tables:
            table.insert(1, "bank", setting)
        found.append(tables)
        print(stored.classifier, setting, flush=True)
    single, means = (pd.concat(parts, ignore_index=True) for parts in zip(*found, strict=True))
    return single, means
