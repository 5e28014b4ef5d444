"""Time the fit and the application of every method except DAC at the size of ImageNet, and report the gain.

python benchmarks/calibrators.py
"""

from __future__ import annotations

import resource
import time
import warnings
from pathlib import Path

import densecal
from densecal.arrays import softmax
from temperature_fits import CLASSES, SAMPLES, make_validation_set

RESULT = Path(__file__).parent / "results" / "calibrators.md"
LIMITS = {"dia": "120 s (the optimisation in the paper, ImageNet DenseNet169: 10,959.6 s)", "pts": "60 s"}
METHODS = ("ts", "ets", "irm", "ir", "spl", "pts", "vs", "dia", "dir")


def measure(probabilities, labels) -> str:
    found = densecal.metrics.evaluate(probabilities, labels, kde=False)
    return f"{found.brier:.4f} | {found.nll:.4f} | {found.ece:.4f}"


def row(name: str, validation, fresh) -> str:
    calibrator = densecal.make_calibrator(name)
    start, start_cpu = time.perf_counter(), time.process_time()
    calibrator.fit(*validation)
    fit_time, cpu_time = time.perf_counter() - start, time.process_time() - start_cpu
    start = time.perf_counter()
    probabilities = calibrator.predict_proba(fresh[0])
    apply_time = time.perf_counter() - start
    times = f"{fit_time:.2f} s | {cpu_time:.2f} s | {LIMITS.get(name, '-')} | {apply_time:.2f} s"
    return f"| {calibrator.full_name} | {times} | {measure(probabilities, fresh[1])} |"


def main() -> None:
    warnings.simplefilter("ignore")
    validation = make_validation_set(SAMPLES, CLASSES, 1)[:2]
    fresh = make_validation_set(SAMPLES, CLASSES, 1, seed=1)[:2]
    lines = [
        f"| {SAMPLES:,} x {CLASSES:,} (2 cores) | fit | CPU time | at most | apply | Brier, fresh data | NLL | ECE |",
        "|---|---|---|---|---|---|---|---|",
        f"| uncalibrated | - | - | - | - | {measure(softmax(fresh[0]), fresh[1])} |",
        *(row(name, validation, fresh) for name in METHODS),
    ]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    head = "## Fits of the other methods\n\nWritten by `python benchmarks/calibrators.py`.\n\n"
    text = head + "\n".join(lines) + f"\n\nPeak memory of the run: {peak:.1f} GiB.\n"
    print(text)
    RESULT.write_text(text)


if __name__ == "__main__":
    main()
