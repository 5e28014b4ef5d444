"""Compare the fits of DAC and temperature scaling with those of other optimisers: ratios of times in one run.

python benchmarks/temperature_fits.py
"""

from __future__ import annotations

import warnings

import numpy as np
from scipy.optimize import minimize
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator

import densecal
from bench import timed, write_section
from reproduction.page.markdown import markdown

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


def compare_dac(layers: int, target: float) -> list[str]:
    logits, labels, distances = make_validation_set(SAMPLES, CLASSES, layers)
    ours = timed(lambda: densecal.DAC().fit(logits, labels, distances=distances))
    theirs = timed(lambda: fit_by_finite_differences(logits, labels, distances))
    return [
        f"DAC fit, {SAMPLES:,} x {CLASSES:,}, {layers} layers",
        f"{ours.seconds:.2f} s, loss {ours.result.loss_:.6f}",
        f"{theirs.seconds:.1f} s, loss {theirs.result.fun:.6f} (finite differences, {theirs.result.nit} iterations)",
        f"{theirs.seconds / ours.seconds:.0f}x",
        f"{target}x",
    ]


class LogitsAsInputs(ClassifierMixin, BaseEstimator):
    """A classifier whose inputs are the logits."""

    def fit(self, X, y):
        self.classes_ = np.arange(X.shape[1])
        return self

    def decision_function(self, X):
        return X

    def predict(self, X):
        return X.argmax(axis=1)


def compare_temperature(target: float) -> list[str]:
    samples = 2 * SAMPLES
    logits, labels, _ = make_validation_set(samples, CLASSES, 1)
    labels[:CLASSES] = np.arange(CLASSES)  # scikit-learn requires a sample of every class
    ours = timed(lambda: densecal.TemperatureScaling(loss="nll").fit(logits, labels))
    frozen = FrozenEstimator(LogitsAsInputs().fit(logits, labels))
    theirs = timed(lambda: CalibratedClassifierCV(frozen, method="temperature").fit(logits, labels))
    beta = theirs.result.calibrated_classifiers_[0].calibrators[0].beta_
    return [
        f"temperature fit, {samples:,} x {CLASSES:,}",
        f"{ours.seconds:.2f} s, T = {ours.result.temperature_:.5f}",
        f"{theirs.seconds:.2f} s, T = {1 / beta:.5f} (scikit-learn)",
        f"{theirs.seconds / ours.seconds:.1f}x",
        f"{target}x",
    ]


def main() -> None:
    warnings.simplefilter("ignore")
    rows = [compare_temperature(3), compare_dac(6, 15), compare_dac(36, 50)]
    header = ["work (2 cores)", "densecal", "against", "ratio", "at least"]
    written = "Written by `python benchmarks/temperature_fits.py`."
    write_section("temperature_fits", "## Temperature fits", written, markdown(header, rows))


if __name__ == "__main__":
    main()
