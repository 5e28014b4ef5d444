from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real data for development, beside the repository; tests that need it are skipped elsewhere."""
    if not SHARED_DATA.exists():
        pytest.skip("needs the real data in ../shared/data, which lies only beside the development checkout")
    return SHARED_DATA


@pytest.fixture
def overconfident():
    """Logits twice too large, labels, and two layers of distances of which the first tells how wrong they are."""
    rng = np.random.default_rng(0)
    samples, classes = 3000, 5
    distances = rng.uniform(0.2, 1.0, (samples, 2))
    honest = rng.normal(0, 2, (samples, classes))
    labels = (honest + rng.gumbel(size=honest.shape)).argmax(axis=1)
    return honest * (0.5 + 3 * distances[:, :1]), labels, distances
