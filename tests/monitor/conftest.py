from __future__ import annotations

import numpy as np
import pytest

from densecal import Outputs, make_calibrator

CLASSES = 5


def make_outputs(samples: int, shift: float, seed: int, harm: float = 1.0) -> Outputs:
    """A classifier whose accuracy falls with the shift while its logits stay as large; one layer sees the shift."""
    rng = np.random.default_rng(seed)
    honest = rng.normal(0, 2.5, (samples, CLASSES))
    labels = (honest + rng.gumbel(size=honest.shape)).argmax(axis=1)
    logits = 2.5 * (honest + rng.normal(0, 1.0 + 2.5 * shift, honest.shape) * shift * harm)
    angle = 0.1 + 0.5 * shift + rng.normal(0, 0.03, samples)
    deep = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    plain = np.array([1.0, 0.0]) + rng.normal(0, 0.05, (samples, 2))
    features = {"deep": deep.astype(np.float32), "plain": plain.astype(np.float32)}
    return Outputs(logits.astype(np.float32), labels, features)


@pytest.fixture(scope="session")
def stream():
    return make_outputs


@pytest.fixture(scope="session")
def calibrator():
    from densecal import FeatureBank

    bank = FeatureBank(make_outputs(2000, 0.0, 1).features)
    shifted = {
        f"{kind}/{shift}": make_outputs(600, shift, 10 * row + column, harm)
        for row, (kind, harm) in enumerate({"fog": 0.8, "rain": 1.0, "dusk": 1.2}.items())
        for column, shift in enumerate((0.2, 0.5, 0.9))
    }
    return make_calibrator("dac", bank=bank).fit(make_outputs(4000, 0.0, 99), shifted=shifted)


@pytest.fixture(scope="session")
def limit(calibrator):
    """Five points below the accuracy on clean data."""
    from densecal import Monitor

    return round(Monitor(calibrator, alarm_below=0.01).clean_accuracy - 0.05, 3)
