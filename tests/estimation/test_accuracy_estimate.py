from __future__ import annotations

import json

import numpy as np
import pytest

from densecal import AccuracyEstimate
from densecal.estimation.accuracy_estimate import expected_confusion


def estimate(confusion=None):
    return AccuracyEstimate(0.8, 0.7, 0.9, 50, 0.85, 0.93, 0.1, {"pool": 1.2}, confusion)


def test_scores_per_class_follow_from_the_confusion_matrix():
    found = estimate(np.array([[30.0, 10.0], [0.0, 10.0]]))
    np.testing.assert_allclose(found.precision, [1.0, 0.5])
    np.testing.assert_allclose(found.recall, [0.75, 1.0])
    np.testing.assert_allclose(found.f1, [6 / 7, 2 / 3])
    assert found.macro_f1 == pytest.approx((6 / 7 + 2 / 3) / 2)


def test_without_a_confusion_matrix_the_rule_is_stated():
    with pytest.raises(ValueError, match=r"at least 20 samples per class; this batch has 50"):
        estimate().macro_f1  # noqa: B018


def test_one_sample_is_not_called_samples():
    one = AccuracyEstimate(0.8, 0.1, 1.0, 1, 0.85, 0.93, 0.1, {})
    assert str(one) == "accuracy 80.0 % (10.0 to 100.0 %, 1 sample); temperature scaling claims 93.0 %"


@pytest.mark.parametrize("confusion", [None, np.array([[30.0, 0.0], [20.0, 0.0]])])
def test_the_dictionary_is_valid_json(confusion):
    text = json.dumps(estimate(confusion).to_dict(), allow_nan=False)
    assert json.loads(text)["drift"] == {"pool": 1.2}


def test_the_expected_confusion_adds_up():
    probabilities = np.array([[0.9, 0.1], [0.6, 0.4], [0.3, 0.7]])
    np.testing.assert_allclose(expected_confusion(probabilities, np.array([0, 0, 1])), [[1.5, 0.3], [0.5, 0.7]])
