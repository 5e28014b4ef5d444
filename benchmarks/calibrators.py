"""Time the fit and the application of every method except DAC at the size of ImageNet, and report the gain.

python benchmarks/calibrators.py
"""

from __future__ import annotations

import resource
import warnings

import densecal
from bench import timed, write_section
from densecal.arrays import softmax
from reproduction.page.markdown import markdown
from temperature_fits import CLASSES, SAMPLES, make_validation_set

LIMITS = {"dia": "120 s (the optimisation in the paper, ImageNet DenseNet169: 10,959.6 s)", "pts": "60 s"}
METHODS = ("ts", "ets", "irm", "ir", "spl", "pts", "vs", "dia", "dir")


def measure(probabilities, labels) -> list[str]:
    found = densecal.metrics.evaluate(probabilities, labels, kde=False)
    return [f"{value:.4f}" for value in (found.brier, found.nll, found.ece)]


def row(name: str, validation, fresh) -> list[str]:
    calibrator = densecal.make_calibrator(name)
    fit = timed(lambda: calibrator.fit(*validation))
    apply = timed(lambda: calibrator.predict_proba(fresh[0]))
    times = [f"{fit.seconds:.2f} s", f"{fit.cpu:.2f} s", LIMITS.get(name, "-"), f"{apply.seconds:.2f} s"]
    return [calibrator.full_name, *times, *measure(apply.result, fresh[1])]


def main() -> None:
    warnings.simplefilter("ignore")
    validation = make_validation_set(SAMPLES, CLASSES, 1)[:2]
    fresh = make_validation_set(SAMPLES, CLASSES, 1, seed=1)[:2]
    rows = [["uncalibrated", *"----", *measure(softmax(fresh[0]), fresh[1])]]
    rows += [row(name, validation, fresh) for name in METHODS]
    times = ["fit", "CPU time", "at most", "apply"]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    write_section(
        "calibrators",
        "## Fits of the other methods",
        "Written by `python benchmarks/calibrators.py`.",
        markdown([f"{SAMPLES:,} x {CLASSES:,} (2 cores)", *times, "Brier, fresh data", "NLL", "ECE"], rows),
        f"Peak memory of the run: {peak:.1f} GiB.",
    )


if __name__ == "__main__":
    main()
