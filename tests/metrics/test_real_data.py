from __future__ import annotations

import numpy as np
import pytest

from densecal.metrics import evaluate


@pytest.mark.parametrize(
    ("file", "accuracy", "ece"),
    [
        ("cifar10/lenet-5-cifar-10", 0.5308, 0.1079),
        ("cifar10/wideresnet-16-4-cifar-10", 0.9109, 0.0537),
        ("cifar100/densenet-bc-100-cifar-100", 0.7541, 0.1422),
        ("cifar100/wideresnet-16-4-cifar-100", 0.7543, 0.0581),
        ("cifar100/lenet-5-cifar-100", 0.1246, 0.0149),
    ],
)
def test_published_probabilities_have_the_stated_accuracy_and_ece(shared_data, file, accuracy, ece):
    arrays = np.load(shared_data / "probabilities" / f"{file}.npz")
    row = evaluate(arrays["predictions"], arrays["ground_truth"])
    assert round(row.accuracy, 4) == accuracy
    assert round(row.ece, 4) == ece
    # The other estimates of the same gap must not be far.
    assert row.ece_mass == pytest.approx(ece, abs=0.002)
    assert row.ece_kde == pytest.approx(ece, abs=0.01)
    assert row.ks <= row.ece + 0.001
