"""What the fuzzers and fault injectors share: a tally, a problem to calibrate, and the checks of an answer."""

from __future__ import annotations

import warnings
from collections import Counter
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np

import densecal
from densecal.calibrators.registry import METHODS

CLASSES, LAYERS = 4, ("conv", "pool")
PLAIN = tuple(name for name in METHODS if name != "dac")
NAMES = (*METHODS, *(f"dac+{name}" for name in PLAIN), "dac-shift")
SHM = Path("/dev/shm")


@dataclass
class Tally:
    """How many faults were tried, how many were refused with a clear error, and which had a bad end."""

    tried: int = 0
    refused: int = 0
    bad: list[str] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)

    def spoil(self, what: str) -> None:
        self.bad.append(what)

    def refuse(self, error: BaseException, *names: str, what: str = "") -> None:
        """Count an error; it is bad if it is of an unexpected type or names neither the file nor the argument."""
        clear = (ValueError, TypeError, OSError, densecal.ArtefactError)
        if isinstance(error, clear) and any(name in str(error) for name in names):
            self.refused += 1
            self.kinds[type(error).__name__] += 1
        else:
            self.spoil(f"{what}: {type(error).__name__}: {str(error)[:200]}")


def scratch_folder() -> Path | None:
    """Return a folder in memory if there is one, because saves sync to disk."""
    return SHM if SHM.is_dir() else None


def features_of(rng, samples):
    return {layer: rng.normal(size=(samples, 5)).astype(np.float32) for layer in LAYERS}


@cache
def problem(samples=300, seed=0):
    """Return logits twice too large, labels and features."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(samples, CLASSES)) * 2
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    return (2 * logits).astype(np.float32), labels, features_of(rng, samples)


@cache
def fitted(name):
    """Return a calibrator that was fitted on the problem."""
    logits, labels, features = problem()
    training = features_of(np.random.default_rng(1), 40)
    bank = densecal.FeatureBank(training, **({"centres": 8} if name == "dac-shift" else {"k": 5}))
    calibrator = densecal.make_calibrator(name, bank=bank if name.startswith("dac") else None)
    if name == "dac-shift":
        calibrator.set_params(max_clean_cost=None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shifted = None
        if name == "dac-shift":
            far = {layer: values + 2 for layer, values in features.items()}
            shifted = densecal.Outputs(logits, labels[::-1].copy(), far)
        calibrator.fit(densecal.Outputs(logits, labels, features), shifted=shifted)
    return calibrator


def wrong_with(probabilities, logits, *, keeps_class):
    """Return what is wrong with calibrated probabilities, or an empty string."""
    if probabilities.shape != logits.shape:
        return f"shape {probabilities.shape} for {logits.shape}"
    if not np.isfinite(probabilities).all():
        return "NaN or infinite"
    if probabilities.min() < 0 or probabilities.max() > 1 + 1e-6:
        return f"outside [0, 1]: {probabilities.min()} to {probabilities.max()}"
    if np.abs(probabilities.sum(axis=1, dtype=np.float64) - 1).max() > 1e-5:
        return f"a row sums to {probabilities.sum(axis=1)[np.abs(probabilities.sum(axis=1) - 1).argmax()]}"
    if keeps_class and (probabilities.argmax(axis=1) != logits.argmax(axis=1)).any():
        return "the predicted class changed"
    return ""
