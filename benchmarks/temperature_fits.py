"""Compare the fits of DAC and temperature scaling with those of other optimisers: ratios of times in one run.

python benchmarks/temperature_fits.py [--small]
"""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path

import numpy as np
from scipy.optimize import minimize
from scipy.special import softmax

import densecal

RESULTS = Path(__file__).parent / "results"


def make_validation_set(samples: int, classes: int, layers: int, seed: int = 0):
    """Return over-confident logits whose true temperature increases with the distances, as DAC assumes."""
    rng = np.random.default_rng(seed)
    distances = rng.gamma(9.0, 0.05, (samples, layers)).astype(np.float32)
    weights = np.linspace(0, 2, layers) / layers
    temperature = 0.5 + distances @ weights
    true_logits = rng.normal(0, 1.5, (samples, classes)).astype(np.float32)
    true_logits[np.arange(samples), rng.integers(0, classes, samples)] += 9
    gumbel = rng.gumbel(size=(samples, classes))
    labels = (true_logits + gumbel).argmax(axis=1)
    return (true_logits * temperature[:, None] * 1.7).astype(np.float32), labels, distances


def fit_by_finite_differences(logits, labels, distances):
    """Minimise the same objective with the same bounds and start, but with SciPy's finite differences."""
    one_hot = np.zeros(logits.shape, np.float32)
    one_hot[np.arange(len(labels)), labels] = 1

    def objective(weights):
        temperatures = distances @ weights[:-1] + weights[-1]
        return np.mean(np.sum((softmax(logits / temperatures[:, None], axis=1) - one_hot) ** 2, axis=1))

    layers = distances.shape[1]
    start = np.append(np.full(layers, 1.0 / layers), 1.0)
    bounds = [(0, None)] * layers + [(1e-3, None)]
    return minimize(objective, start, method="L-BFGS-B", bounds=bounds)


def compare_dac(samples: int, classes: int, layers: int, target: float) -> str:
    logits, labels, distances = make_validation_set(samples, classes, layers)
    start = time.perf_counter()
    dac = densecal.DAC().fit(logits, labels, distances=distances)
    ours = time.perf_counter() - start
    start = time.perf_counter()
    plain = fit_by_finite_differences(logits, labels, distances)
    theirs = time.perf_counter() - start
    return (
        f"| DAC fit, {samples:,} x {classes:,}, {layers} layers | {ours:.2f} s, loss {dac.loss_:.6f} | "
        f"{theirs:.1f} s, loss {plain.fun:.6f} (finite differences, {plain.nit} iterations) | {theirs / ours:.0f}x | "
        f"{target}x |"
    )


def compare_temperature(samples: int, classes: int, target: float) -> str:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.frozen import FrozenEstimator

    class Frozen(ClassifierMixin, BaseEstimator):
        """A classifier whose inputs are the logits."""

        def __init__(self, classes: int = 2):
            self.classes = classes

        def fit(self, X, y):
            self.classes_ = np.arange(self.classes)
            return self

        def decision_function(self, X):
            return X

        def predict(self, X):
            return X.argmax(axis=1)

    logits, labels, _ = make_validation_set(samples, classes, 1)
    labels[:classes] = np.arange(classes)  # scikit-learn requires a sample of every class
    start = time.perf_counter()
    ours_fit = densecal.TemperatureScaling(loss="nll").fit(logits, labels)
    ours = time.perf_counter() - start
    frozen = FrozenEstimator(Frozen(classes).fit(logits, labels))
    start = time.perf_counter()
    reference = CalibratedClassifierCV(frozen, method="temperature").fit(logits, labels)
    theirs = time.perf_counter() - start
    beta = reference.calibrated_classifiers_[0].calibrators[0].beta_
    return (
        f"| temperature fit, {samples:,} x {classes:,} | {ours:.2f} s, T = {ours_fit.temperature_:.5f} | "
        f"{theirs:.2f} s, T = {1 / beta:.5f} (scikit-learn) | {theirs / ours:.1f}x | {target}x |"
    )


def main(small: bool) -> None:
    warnings.simplefilter("ignore")
    size, classes = (2_000, 100) if small else (12_500, 1_000)
    rows = [
        compare_temperature(2 * size, classes, 3),
        compare_dac(size, classes, 6, 15),
        compare_dac(size, classes, 36, 50),
    ]
    lines = ["| work (2 cores) | densecal | against | ratio | at least |", "|---|---|---|---|---|", *rows]
    text = "## Temperature fits\n\n" + "\n".join(lines) + "\n"
    print(text)
    if not small:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "temperature_fits.md").write_text(text)


if __name__ == "__main__":
    main(small="--small" in sys.argv)
