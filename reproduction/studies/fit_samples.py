"""The cost of fitting on a random sample of a large validation set.

    python -m reproduction.studies.fit_samples [--classes 1000] [--output results/fit_samples]

The logits are generated, since no public data set has a million labelled samples that a classifier was not trained on:
a classifier of 1,000 classes that is over-confident, more so for some classes and for larger margins, so a single
temperature cannot correct it. Each method is fitted on samples of increasing size and evaluated on other data.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import typer

from densecal import Outputs, make_calibrator
from densecal.evaluation.predictions import has_own_confidence
from densecal.metrics import evaluate
from reproduction.methods import quiet_fits
from reproduction.page.tables import frame_table

METHODS = ("ts", "ets", "spl", "irm", "vs")
SIZES = (1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000)
TEST_SAMPLES = 100_000
BATCH = 20_000


def generate(n_samples: int, n_classes: int, seed: int) -> Outputs:
    """Return logits of an over-confident classifier, and labels drawn from its true probabilities."""
    of_class = np.random.default_rng(0).gamma(8.0, 1 / 8.0, n_classes).astype(np.float32)
    draw = np.random.default_rng(seed)
    parts = []
    for start in range(0, n_samples, BATCH):
        rows = min(BATCH, n_samples - start)
        logits = draw.standard_normal((rows, n_classes), dtype=np.float32)
        favoured = draw.integers(0, n_classes, rows)
        margin = draw.gamma(4.0, 5.0, rows).astype(np.float32)
        logits[np.arange(rows), favoured] += margin
        scale = 1.2 + 0.5 * of_class[favoured] + 0.03 * margin
        noise = np.maximum(draw.standard_exponential(logits.shape, dtype=np.float32), 1e-30)
        labels = (logits / scale[:, None] - np.log(noise)).argmax(axis=1)
        parts.append(Outputs(logits, labels))
    return Outputs.concatenate(parts)


def study(n_classes: int) -> pd.DataFrame:
    """Return the ECE and the NLL of each method on other data, by the number of samples of the fit."""
    largest, test = generate(max(SIZES), n_classes, seed=1), generate(TEST_SAMPLES, n_classes, seed=2)
    found = []
    for method in METHODS:
        for size in SIZES:
            with quiet_fits():
                calibrator = make_calibrator(method).fit(largest.sample(size))
            own = calibrator.confidence(test) if has_own_confidence(calibrator) else None
            row = evaluate(calibrator.predict_proba(test), test.labels, confidence=own, kde=False)
            found.append({"method": method, "n_samples": size, "ece": row.ece, "nll": row.nll})
            print(found[-1], flush=True)
    return pd.DataFrame(found)


def describe(found: pd.DataFrame, n_classes: int) -> str:
    """Return the study as a page: the metrics of each method by the number of samples."""
    lines = [
        "# The cost of fitting on a sample",
        "",
        f"Generated logits of an over-confident classifier with {n_classes:,} classes. Each method is fitted on samples"
        f" of increasing size and evaluated on {TEST_SAMPLES:,} other samples. Written by "
        "`python -m reproduction.studies.fit_samples`.",
        "",
        "`densecal fit` uses 100,000 random samples of a larger validation set (`--max-samples`). Methods with few "
        "parameters (ts, ets, spl, irm) gain little or nothing from the last doublings. Vector scaling, with two "
        "parameters per class, still gains: its NLL and ECE keep falling, so use more samples if memory allows.",
    ]
    for metric, title, scale in (("ece", "ECE x100", 100), ("nll", "NLL", 1)):
        rows = found.pivot(index="method", columns="n_samples", values=metric).loc[list(METHODS)] * scale
        lines += ["", f"## {title}", "", frame_table(rows.rename(columns="{:,}".format), ".4f").rstrip()]
    return "\n".join(lines) + "\n"


def main(classes: int = 1_000, output: Path = Path("results/fit_samples")) -> None:
    """Write study.csv and README.md of the study."""
    output.mkdir(parents=True, exist_ok=True)
    found = study(classes)
    found.to_csv(output / "study.csv", index=False, float_format="%.6f")
    (output / "README.md").write_text(describe(found, classes))


if __name__ == "__main__":
    typer.run(main)
