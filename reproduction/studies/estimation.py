"""Estimate accuracies without labels and adapt to batches, on six networks under 91 conditions.

    python -m reproduction.studies.estimation [NETWORKS] --measurements FOLDER [--out results/estimation]
    python -m reproduction.studies.estimation --page        # only rewrite the page from study.csv.gz

FOLDER holds what `reproduction.studies.estimation_measurements` measured of each network: distances to centres, 2,000
images per condition, and three perturbed copies of the validation set. It is not in the repository. Networks that are
not named keep their rows in study.csv.gz.
The features and constants of `densecal.estimation` were chosen on CHOSEN_ON; the other networks were held out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer

import densecal
from densecal.calibrators.base import Calibrator
from densecal.metrics import expected_calibration_error
from densecal.outputs import Outputs
from densecal.shift import plan_perturbations
from reproduction.measuring.measurements import CLEAN, COPY, VAL, Measurements, labelled_sets
from reproduction.methods import quiet_fits
from reproduction.studies.accuracy_peers import compare, estimates
from reproduction.studies.estimation_page import summary
from reproduction.studies.shift_fit import CHOSEN_ON, PRETRAINED

NETWORKS = (*PRETRAINED, "c10-resnet18", "c10-vgg16")
BATCH, SMALL, LABEL_SHIFTED = 2000, 200, 500
DRAWS = 2
"""Number of small and of label-shifted batches per condition."""
CONCENTRATION = 0.3
MIXED_SEVERITIES = ("3", "5")


def shifted_domains(measured: Measurements) -> dict[str, Outputs]:
    """Return the perturbed copies of the validation set, split by the kind and strength of the perturbation."""
    parts, names = [], []
    for name in (name for name in measured.sets if name.startswith(COPY)):
        parts.append(measured.outputs(name, None))
        seed = int(name.removeprefix(COPY))
        names.append(plan_perturbations(np.arange(len(parts[-1])), seed).domains())
    return Outputs.concatenate(parts).split(np.concatenate(names))


def conditions(measured: Measurements) -> dict[str, Outputs]:
    return {name: measured.outputs(name, None)[:BATCH] for name in labelled_sets(measured.sets)}


def label_shifted(outputs: Outputs, rng: np.random.Generator) -> Outputs:
    """Draw samples whose classes have the shares of a Dirichlet distribution, with replacement."""
    labels = np.asarray(outputs.labels)
    shares = rng.dirichlet(np.full(outputs.n_classes, CONCENTRATION))
    weights = (shares / np.maximum(np.bincount(labels, minlength=outputs.n_classes), 1))[labels]
    return outputs[rng.choice(len(labels), LABEL_SHIFTED, p=weights / weights.sum())]


def batches(tests: Mapping[str, Outputs]) -> Iterator[tuple[str, str, Outputs]]:
    """Yield the kind, the condition and the outputs of every batch."""
    rng = np.random.default_rng(0)
    for name, outputs in tests.items():
        yield f"{BATCH} samples", name, outputs
        for _ in range(DRAWS):
            yield f"{SMALL} samples", name, outputs[rng.permutation(len(outputs))[:SMALL]]
            yield f"{LABEL_SHIFTED} label-shifted", name, label_shifted(outputs, rng)


def mixed_batches(tests: Mapping[str, Outputs]) -> Iterator[tuple[str, list[Outputs]]]:
    """Yield batches of two halves, clean and corrupted."""
    rng = np.random.default_rng(0)
    for name, outputs in tests.items():
        if name.endswith(MIXED_SEVERITIES):
            rows = [rng.permutation(len(part))[: BATCH // 2] for part in (tests[CLEAN], outputs)]
            yield name, [tests[CLEAN][rows[0]], outputs[rows[1]]]


def ece(calibrator: Calibrator, outputs: Outputs) -> float:
    return expected_calibration_error(calibrator.predict_proba(outputs), outputs.labels)


def study(name: str, folder: Path) -> pd.DataFrame:
    measured = Measurements.load(folder / name)
    val, tests = measured.outputs(VAL, None), conditions(measured)
    with quiet_fits():
        scaling = densecal.TemperatureScaling(loss="nll").fit(val)
        dac = densecal.DAC().fit(val, shifted=shifted_domains(measured))
    peers = estimates(val, dac)
    rows: list[dict[str, Any]] = []
    for kind, condition, batch in batches(tests):
        row = {"kind": kind, "condition": condition, **compare(dac, batch, peers)}
        if kind.startswith(str(BATCH)):
            adapted = dac.adapted_to(batch)
            row |= {"ece ts": ece(scaling, batch), "ece shift fit": ece(dac, batch), "ece adapted": ece(adapted, batch)}
        rows.append(row)
    for condition, halves in mixed_batches(tests):
        adapted = dac.adapted_to(Outputs.concatenate(halves))
        fitted = {"ts": scaling, "shift fit": dac, "adapted": adapted}
        errors = {f"ece {key}": float(np.mean([ece(one, half) for half in halves])) for key, one in fitted.items()}
        rows.append({"kind": "mixed halves", "condition": condition, **errors})
    role = "chosen on" if name in CHOSEN_ON else "held out"
    return pd.DataFrame(rows).assign(network=name, role=role)


def main(
    networks: Annotated[list[str] | None, typer.Argument(help="Measured networks; by default all six.")] = None,
    measurements: Annotated[Path, typer.Option(help="A folder per network.")] = Path("results/measurements"),
    out: Path = Path("results/estimation"),
    page: Annotated[bool, typer.Option(help="Only rewrite the page from study.csv.gz.")] = False,
) -> None:
    """Write study.csv.gz and README.md of the study."""
    table = out / "study.csv.gz"
    if not page:
        out.mkdir(parents=True, exist_ok=True)
        parts = {str(name): rows for name, rows in pd.read_csv(table).groupby("network")} if table.exists() else {}
        for name in networks or NETWORKS:
            parts[name] = study(name, measurements)
            print(name, "done", flush=True)
        ordered = [parts[name] for name in NETWORKS if name in parts]
        compression = {"method": "gzip", "mtime": 0}
        pd.concat(ordered).round(5).to_csv(table, index=False, compression=compression)
    text = summary(pd.read_csv(table))
    (out / "README.md").write_text(text)
    print(text)


if __name__ == "__main__":
    typer.run(main)
