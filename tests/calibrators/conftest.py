"""Data that several calibrators' tests share."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

REAL_DATA = Path(__file__).parents[3] / "shared" / "data" / "probabilities"


def overconfident(samples: int, classes: int, seed: int = 0, sharpness: float = 3.0):
    """Logits whose honest version is known: labels are drawn from softmax(logits / sharpness)."""
    rng = np.random.default_rng(seed)
    honest = rng.normal(scale=2.0, size=(samples, classes))
    gumbel = rng.gumbel(size=(samples, classes))
    return honest * sharpness, (honest + gumbel).argmax(axis=1)


@pytest.fixture(scope="session")
def make_overconfident():
    return overconfident


@pytest.fixture(scope="session")
def ten_classes():
    return overconfident(1500, 10)


@pytest.fixture(scope="session")
def real_networks():
    """Logits and labels of public networks: name -> (logits, labels)."""
    if not REAL_DATA.is_dir():
        pytest.skip("the real probabilities lie in ../shared/data/probabilities, which is not here")
    networks = {}
    for path in sorted(REAL_DATA.glob("*/*.npz")):
        with np.load(path) as file:
            logits = np.log(np.clip(file["predictions"], 1e-30, None)).astype(np.float32)
            labels = file["ground_truth"].reshape(-1).astype(np.int64)
        networks[path.stem] = logits, labels
    return networks
