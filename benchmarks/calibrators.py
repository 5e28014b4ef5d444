"""Time the fit and the application of every method except DAC at the size of ImageNet, and report the gain.

python benchmarks/calibrators.py [--small]
"""

from __future__ import annotations

import resource
import sys
import time
import warnings
from pathlib import Path

import numpy as np

import densecal
from temperature_fits import make_validation_set

RESULTS = Path(__file__).parent / "results"
LIMITS = {"dia": "120 s (the paper's took 10,959 s)", "pts": "60 s"}
METHODS = ("ets", "irm", "ir", "spl", "pts", "vs", "dia", "dir")


def measure(probabilities, labels) -> str:
    of_label = probabilities[np.arange(len(labels)), labels].astype(np.float64)
    squares = np.einsum("ij,ij->i", probabilities, probabilities, dtype=np.float64)
    brier = (squares - 2 * of_label + 1).mean()
    nll = -np.log(np.maximum(of_label, 1e-20)).mean()
    error = densecal.metrics.expected_calibration_error(probabilities, labels)
    return f"{brier:.4f} | {nll:.4f} | {error:.4f}"


def row(name: str, validation, fresh) -> str:
    logits, labels = validation
    calibrator = densecal.make_calibrator(name)
    start, start_cpu = time.perf_counter(), time.process_time()
    calibrator.fit(logits, labels)
    fit_time, cpu_time = time.perf_counter() - start, time.process_time() - start_cpu
    start = time.perf_counter()
    probabilities = calibrator.predict_proba(fresh[0])
    apply_time = time.perf_counter() - start
    limit = LIMITS.get(name, "-")
    times = f"{fit_time:.2f} s | {cpu_time:.2f} s | {limit} | {apply_time:.2f} s"
    return f"| {calibrator.full_name} | {times} | {measure(probabilities, fresh[1])} |"


def main(small: bool) -> None:
    warnings.simplefilter("ignore")
    samples, classes = (2_000, 100) if small else (12_500, 1_000)
    validation = make_validation_set(samples, classes, 1)[:2]
    fresh = make_validation_set(samples, classes, 1, seed=1)[:2]
    plain = np.exp(fresh[0] - fresh[0].max(axis=1, keepdims=True))
    plain /= plain.sum(axis=1, keepdims=True)
    lines = [
        f"| {samples:,} x {classes:,} (2 cores) | fit | CPU time | at most | apply | Brier, fresh data | NLL | ECE |",
        "|---|---|---|---|---|---|---|---|",
        f"| uncalibrated | - | - | - | - | {measure(plain, fresh[1])} |",
        *(row(name, validation, fresh) for name in ("ts", *METHODS)),
    ]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    text = "## Fits of the other methods\n\n" + "\n".join(lines) + f"\n\nPeak memory of the run: {peak:.1f} GiB.\n"
    print(text)
    if not small:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "calibrators.md").write_text(text)


if __name__ == "__main__":
    main(small="--small" in sys.argv)
