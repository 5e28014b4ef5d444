from __future__ import annotations

import numpy as np

from densecal import FeatureBank


def test_float64_features_beyond_the_range_of_float32_are_measured():
    rng = np.random.default_rng(0)
    bank = FeatureBank({"pool": rng.normal(size=(30, 4))}, k=3)
    queries = rng.normal(size=(5, 4))
    expected = bank.distances({"pool": queries})
    for scale in (1e-300, 1e-60, 1e60, 1e300):
        np.testing.assert_allclose(bank.distances({"pool": scale * queries}), expected, atol=1e-3)
