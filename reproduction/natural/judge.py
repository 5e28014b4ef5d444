"""Fit every method on the source domain, and evaluate it on the source and on the targets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

import densecal
from densecal.calibrators import ORACLE, UNCALIBRATED
from densecal.calibrators.base import Calibrator
from densecal.evaluation import EvaluationTable, evaluate_conditions
from densecal.outputs import Outputs
from reproduction.measuring.measurements import CLEAN, OOD, PERTURBED, VAL, Measurements, labelled_sets
from reproduction.methods import quiet_fits
from reproduction.natural.estimates import estimate_targets

DEFAULT, ADAPTED = "default", "adapted"
METHODS = (UNCALIBRATED, "ts", "ets", "dac", DEFAULT, f"{DEFAULT}+ets", ADAPTED, ORACLE)
METRICS = ("ece", "brier", "nll", "accuracy", "mean_confidence")
OOD_METRICS = ("auroc", "fpr_at_95_tpr", "detection_error")
N_RESAMPLES = 400

Fitted = list[tuple[int | None, dict[str, Calibrator]]]
"""Methods by the distances that they take: to the k-th row, or to the nearest centre (None)."""


def perturbed_domains(measured: Measurements) -> dict[str, Outputs]:
    """Return the perturbed validation data, each kind and strength a domain."""
    names = [name for name in measured.sets if name.startswith(PERTURBED)]
    return {name.removeprefix(PERTURBED): measured.outputs(name, None) for name in names}


def fit_all(measured: Measurements, shifted: Mapping[str, Outputs], k: int | None = None) -> Fitted:
    """Return the fitted methods; the shift fit has ``shifted``, one entry per domain, the paper's DAC the k-th row."""
    k = next(each for each in measured.ks if each is not None) if k is None else k
    ours = {DEFAULT: densecal.DAC(), f"{DEFAULT}+ets": densecal.Chain(densecal.DAC(), densecal.make_calibrator("ets"))}
    with quiet_fits():
        clean = {name: densecal.make_calibrator(name).fit(measured.outputs(VAL, k)) for name in ("ts", "ets", "dac")}
        return [
            (k, clean),
            (None, {name: one.fit(measured.outputs(VAL, None), shifted=shifted) for name, one in ours.items()}),
        ]


def judge(measured: Measurements, fitted: Fitted) -> pd.DataFrame:
    """Return one row per method and test set: every metric, and the paired difference of the ECE to that of TS."""
    rows = []
    for name in labelled_sets(measured.sets):
        about = {**_about(measured, name), "samples": len(measured.sets[name])}
        rows += [{**about, **row} for row in table_rows(evaluate(measured, fitted, name))]
    return pd.DataFrame(rows)


def _about(measured: Measurements, name: str) -> dict[str, Any]:
    """Return the columns that name a test set: the clean one has the source as its target."""
    study, source, seed = measured.classifier.rsplit("-", 2)
    target = source if name == CLEAN else name.removeprefix(OOD)
    return {"study": study, "source": source, "target": target, "seed": int(seed)}


def evaluate(measured: Measurements, fitted: Fitted, name: str) -> EvaluationTable:
    """Return the metrics of the fitted methods, of the adapted one and of the oracle on a test set."""
    found: EvaluationTable | None = None
    for k, methods in fitted:
        condition = measured.condition(name, k)
        first = found is None
        if DEFAULT in methods:
            methods = {**methods, ADAPTED: adapt(methods[DEFAULT], measured.outputs(name, k))}
        table = evaluate_conditions(
            methods, [condition], metrics=METRICS, uncalibrated=first, oracle=first, n_resamples=N_RESAMPLES
        )
        found = table if found is None else found.join(table)
    assert found is not None
    return found


def adapt(calibrator: Calibrator, outputs: Outputs) -> Calibrator:
    """Return DAC adapted to a whole test set without its labels, or unchanged if it fell back to the clean fit."""
    assert isinstance(calibrator, densecal.DAC) and outputs.distances is not None
    if calibrator.accuracy_model_ is None:
        return calibrator
    return calibrator.adapted_to(Outputs(outputs.logits).with_distances(outputs.distances))


def table_rows(
    table: EvaluationTable, methods: Sequence[str] = METHODS, severity: int | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the metrics of each method, means over a severity or all, and the paired difference of its ECE to TS's."""
    for method in methods:
        values = {metric: table.estimate(method, metric, severity).estimate for metric in METRICS}
        change = table.difference(method, "ts", severity=severity)
        yield {
            "method": method,
            **values,
            "accuracy error": abs(values["mean_confidence"] - values["accuracy"]),
            "ece minus ts": change.estimate,
            "low": change.low,
            "high": change.high,
        }


def judge_out_of_domain(measured: Measurements, fitted: Fitted) -> pd.DataFrame:
    """Return the metrics of out-of-domain detection by the calibrated confidence, one row per method and set."""
    names = [name for name in measured.sets if name.startswith(OOD)]
    rows = []
    for k, methods in fitted if names else []:
        conditions = [measured.condition(name, k) for name in (CLEAN, *names)]
        table = evaluate_conditions(methods, conditions, metrics=("ece", *OOD_METRICS), n_resamples=0)
        for method in methods if k is None else (UNCALIBRATED, *methods):
            for name in names:
                target = name.removeprefix(OOD)
                values = {metric: table.ood_estimate(method, target, metric).estimate for metric in OOD_METRICS}
                rows.append({**_about(measured, name), "method": method, **values})
    return pd.DataFrame(rows)


def judge_folder(folder: Path, study: str) -> tuple[pd.DataFrame, pd.DataFrame, pd.DataFrame]:
    """Evaluate all measurements of a study; return the test sets, out-of-domain sets and estimated accuracies."""
    paths = sorted(folder.glob(f"{study}-*"))
    if not paths:
        raise FileNotFoundError(
            f"{folder} has no measurements of {study}: run `python -m reproduction.natural measure`"
        )
    parts = []
    for measured in map(Measurements.load, paths):
        fitted = fit_all(measured, perturbed_domains(measured))
        dac = fitted[-1][1][DEFAULT]
        assert isinstance(dac, densecal.DAC)
        estimated = estimate_targets(measured, dac)
        parts.append((judge(measured, fitted), judge_out_of_domain(measured, fitted), estimated))
    tables, outside, estimates = (pd.concat(part) for part in zip(*parts, strict=True))
    return tables, outside, estimates
