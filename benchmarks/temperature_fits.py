"""Compare the fits of DAC and temperature scaling with those of other optimisers: ratios of times in one run.

python benchmarks/temperature_fits.py
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path

import numpy as np
from scipy.optimize import minimize
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator

import densecal

RESULT = Path(__file__).parent / "results" / "temperature_fits.md"
SAMPLES, CLASSES = 12_500, 1_000


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


def compare_dac(layers: int, target: float) -> str:
    logits, labels, distances = make_validation_set(SAMPLES, CLASSES, layers)
    start = time.perf_counter()
    dac = densecal.DAC().fit(logits, labels, distances=distances)
    ours = time.perf_counter() - start
    start = time.perf_counter()
    plain = fit_by_finite_differences(logits, labels, distances)
    theirs = time.perf_counter() - start
    return (
        f"| DAC fit, {SAMPLES:,} x {CLASSES:,}, {layers} layers | {ours:.2f} s, loss {dac.loss_:.6f} | "
        f"{theirs:.1f} s, loss {plain.fun:.6f} (finite differences, {plain.nit} iterations) | {theirs / ours:.0f}x | "
        f"{target}x |"
    )


class LogitsAsInputs(ClassifierMixin, BaseEstimator):
    """A classifier whose inputs are the logits."""

    def fit(self, X, y):
        self.classes_ = np.arange(X.shape[1])
        return self

    def decision_function(self, X):
        return X

    def predict(self, X):
        return X.argmax(axis=1)


def compare_temperature(target: float) -> str:
    samples = 2 * SAMPLES
    logits, labels, _ = make_validation_set(samples, CLASSES, 1)
    labels[:CLASSES] = np.arange(CLASSES)  # scikit-learn requires a sample of every class
    start = time.perf_counter()
    ours_fit = densecal.TemperatureScaling(loss="nll").fit(logits, labels)
    ours = time.perf_counter() - start
    frozen = FrozenEstimator(LogitsAsInputs().fit(logits, labels))
    start = time.perf_counter()
    reference = CalibratedClassifierCV(frozen, method="temperature").fit(logits, labels)
    theirs = time.perf_counter() - start
    beta = reference.calibrated_classifiers_[0].calibrators[0].beta_
    return (
        f"| temperature fit, {samples:,} x {CLASSES:,} | {ours:.2f} s, T = {ours_fit.temperature_:.5f} | "
        f"{theirs:.2f} s, T = {1 / beta:.5f} (scikit-learn) | {theirs / ours:.1f}x | {target}x |"
    )


def main() -> None:
    warnings.simplefilter("ignore")
    rows = [compare_temperature(3), compare_dac(6, 15), compare_dac(36, 50)]
    lines = ["| work (2 cores) | densecal | against | ratio | at least |", "|---|---|---|---|---|", *rows]
    text = "## Temperature fits\n\nWritten by `python benchmarks/temperature_fits.py`.\n\n" + "\n".join(lines) + "\n"
    print(text)
    RESULT.write_text(text)


if __name__ == "__main__":
    main()
