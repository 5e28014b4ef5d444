"""Time all metrics on 50,000 x 1,000 probabilities, the ECE compared with torchmetrics, and the bootstrap.

python benchmarks/metrics.py
"""

from __future__ import annotations

import numpy as np
import torch
from torchmetrics.functional.classification import multiclass_calibration_error

from bench import fastest, timed, write_section
from densecal import metrics
from reproduction.page.markdown import markdown

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


def bench_all_metrics(probabilities: np.ndarray, labels: np.ndarray) -> list[list[str]]:
    size = "{:,} x {:,}".format(*probabilities.shape)
    plain = fastest(lambda: metrics.evaluate(probabilities, labels, kde=False))
    with_kde = fastest(lambda: metrics.evaluate(probabilities, labels))
    return [
        [f"all metrics without ECE-KDE, {size}", f"{plain.seconds:.2f} s", "-", "-", "under 3 s"],
        [f"all metrics, {size}", f"{with_kde.seconds:.2f} s, ECE-KDE {with_kde.result.ece_kde:.4f}", *"---"],
    ]


def bench_ece(probabilities: np.ndarray, labels: np.ndarray) -> list[list[str]]:
    size, n_classes = "{:,} x {:,}".format(*probabilities.shape), probabilities.shape[1]
    tensors = torch.from_numpy(probabilities), torch.from_numpy(labels)
    theirs = fastest(lambda: float(multiclass_calibration_error(*tensors, num_classes=n_classes, n_bins=15)))
    rows = []
    for kind, pair in (("NumPy array", (probabilities, labels)), ("torch tensor", tensors)):
        ours = fastest(lambda pair=pair: metrics.expected_calibration_error(*pair))
        against = f"{theirs.seconds:.3f} s, {theirs.result:.5f} (torchmetrics)"
        ratio = f"{theirs.seconds / ours.seconds:.1f}x"
        rows.append([f"ECE of a {kind}, {size}", f"{ours.seconds:.3f} s, {ours.result:.5f}", against, ratio, "-"])
    return rows


def bench_bootstrap(probabilities: np.ndarray, labels: np.ndarray) -> list[list[str]]:
    confidence, correct = probabilities.max(axis=1), probabilities.argmax(axis=1) == labels
    samples = f"{len(labels):,}"
    ours = fastest(lambda: metrics.bootstrap_interval("ece", confidence, correct)).seconds
    one_by_one = timed(
        lambda: metrics.bootstrap_interval(lambda c, k: metrics.expected_calibration_error(c, k), confidence, correct)
    ).seconds
    conditions = [(confidence ** (1 + i / CONDITIONS), correct) for i in range(CONDITIONS)]
    groups = [0] + [severity for severity in range(1, 6) for _ in range(18)]
    macro = timed(lambda: metrics.macro_bootstrap("ece", conditions, groups=groups)).seconds
    draws = metrics.Resamples(len(labels))
    list(draws.blocks())
    each = {
        name: fastest(lambda metric=metric: draws.replicates(metric, probabilities, labels)).seconds
        for name, metric in metrics.METRICS.items()
        if name not in metrics.OOD_METRICS
    }
    against = [f"{one_by_one:.2f} s (one by one)", f"{one_by_one / ours:.0f}x", "-"]
    return [
        [f"ECE's interval, {metrics.N_RESAMPLES} resamples of {samples}", f"{ours:.2f} s", *against],
        [f"the interval of ALL: mean ECE of {CONDITIONS} conditions x {samples}", f"{macro:.2f} s", *"---"],
        *(
            [f"{name} in {draws.n_resamples} resamples of {samples}", f"{took:.3f} s", *"---"]
            for name, took in each.items()
        ),
    ]


def main() -> None:
    torch.set_num_threads(2)
    predictions = make_predictions(50_000, 1_000)
    rows = [*bench_all_metrics(*predictions), *bench_ece(*predictions)]
    rows += bench_bootstrap(*(array[:10_000] for array in predictions))
    header = ["work (2 cores)", "densecal", "against", "ratio", "at least"]
    write_section("metrics", "## Metrics", "Written by `python benchmarks/metrics.py`.", markdown(header, rows))


if __name__ == "__main__":
    main()
