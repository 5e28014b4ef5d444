"""Time all metrics on 50,000 x 1,000 probabilities, the ECE compared with torchmetrics, and the bootstrap.

python benchmarks/metrics.py
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torchmetrics.functional.classification import multiclass_calibration_error

from densecal import metrics

RESULT = Path(__file__).parent / "results" / "metrics.md"
CONDITIONS = 91  # the clean test set, and 18 corruptions x 5 severities


def make_predictions(n_samples: int, n_classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Return over-confident float32 probabilities, with an accuracy similar to that of ImageNet classifiers."""
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 1.5, (n_samples, n_classes)).astype(np.float32)
    labels = rng.integers(0, n_classes, n_samples)
    logits[np.arange(n_samples), labels] += 7 * rng.random(n_samples).astype(np.float32)
    logits *= 1.5
    logits -= logits.max(axis=1, keepdims=True)
    np.exp(logits, out=logits)
    return logits / logits.sum(axis=1, keepdims=True), labels


def best_of(call: Callable[[], Any], repeats: int = 3) -> tuple[float, Any]:
    """Return the shortest time of several runs, which is least affected by other load, and the result."""
    seconds = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = call()
        seconds.append(time.perf_counter() - start)
    return min(seconds), result


def bench_all_metrics(probabilities: np.ndarray, labels: np.ndarray) -> list[str]:
    size = "{:,} x {:,}".format(*probabilities.shape)
    plain, _ = best_of(lambda: metrics.evaluate(probabilities, labels, kde=False))
    with_kde, row = best_of(lambda: metrics.evaluate(probabilities, labels))
    return [
        f"| all metrics without ECE-KDE, {size} | {plain:.2f} s | - | - | under 3 s |",
        f"| all metrics, {size} | {with_kde:.2f} s, ECE-KDE {row.ece_kde:.4f} | - | - | - |",
    ]


def bench_ece(probabilities: np.ndarray, labels: np.ndarray) -> list[str]:
    size, n_classes = "{:,} x {:,}".format(*probabilities.shape), probabilities.shape[1]
    tensors = torch.from_numpy(probabilities), torch.from_numpy(labels)
    theirs, their_ece = best_of(lambda: float(multiclass_calibration_error(*tensors, num_classes=n_classes, n_bins=15)))
    rows = []
    for kind, pair in (("NumPy array", (probabilities, labels)), ("torch tensor", tensors)):
        ours, ece = best_of(lambda pair=pair: metrics.expected_calibration_error(*pair))
        rows.append(
            f"| ECE of a {kind}, {size} | {ours:.3f} s, {ece:.5f} | {theirs:.3f} s, {their_ece:.5f} (torchmetrics) "
            f"| {theirs / ours:.1f}x | - |"
        )
    return rows


def bench_bootstrap(probabilities: np.ndarray, labels: np.ndarray) -> list[str]:
    confidence, correct = probabilities.max(axis=1), probabilities.argmax(axis=1) == labels
    samples = f"{len(labels):,}"
    ours, _ = best_of(lambda: metrics.bootstrap_interval("ece", confidence, correct))
    one_by_one, _ = best_of(
        lambda: metrics.bootstrap_interval(lambda c, k: metrics.expected_calibration_error(c, k), confidence, correct),
        repeats=1,
    )
    conditions = [(confidence ** (1 + i / CONDITIONS), correct) for i in range(CONDITIONS)]
    groups = [0] + [severity for severity in range(1, 6) for _ in range(18)]
    macro, _ = best_of(lambda: metrics.macro_bootstrap("ece", conditions, groups=groups), repeats=1)
    draws = metrics.Resamples(len(labels))
    list(draws.blocks())
    each = {
        name: best_of(lambda metric=metric: draws.replicates(metric, probabilities, labels))[0]
        for name, metric in metrics.METRICS.items()
        if name not in metrics.OOD_METRICS
    }
    return [
        f"| ECE's interval, {metrics.N_RESAMPLES} resamples of {samples} | {ours:.2f} s "
        f"| {one_by_one:.2f} s (one by one) | {one_by_one / ours:.0f}x | - |",
        f"| the interval of ALL: mean ECE of {CONDITIONS} conditions x {samples} | {macro:.2f} s | - | - | - |",
        *(
            f"| {name} in {draws.n_resamples} resamples of {samples} | {took:.3f} s | - | - | - |"
            for name, took in each.items()
        ),
    ]


def main() -> None:
    torch.set_num_threads(2)
    predictions = make_predictions(50_000, 1_000)
    rows = [*bench_all_metrics(*predictions), *bench_ece(*predictions)]
    rows += bench_bootstrap(*(array[:10_000] for array in predictions))
    lines = ["| work (2 cores) | densecal | against | ratio | at least |", "|---|---|---|---|---|", *rows]
    text = "## Metrics\n\nWritten by `python benchmarks/metrics.py`.\n\n" + "\n".join(lines) + "\n"
    print(text)
    RESULT.write_text(text)


if __name__ == "__main__":
    main()
