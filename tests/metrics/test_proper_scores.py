from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, log_loss

from densecal.metrics import accuracy, brier_score, negative_log_likelihood


@pytest.fixture
def predictions():
    rng = np.random.default_rng(0)
    return rng.dirichlet(np.ones(6), size=300), rng.integers(0, 6, size=300)


def test_brier_is_the_squared_error_summed_over_classes(predictions):
    probabilities, labels = predictions
    by_hand = ((probabilities - np.eye(6)[labels]) ** 2).sum(axis=1).mean()
    assert brier_score(probabilities, labels) == pytest.approx(by_hand)


def test_brier_ranges_from_zero_to_two():
    assert brier_score(np.eye(3), [0, 1, 2]) == 0.0
    assert brier_score(np.eye(3), [1, 2, 0]) == 2.0


def test_brier_leaves_its_input_alone(predictions):
    probabilities, labels = predictions
    before = probabilities.copy()
    brier_score(probabilities, labels)
    np.testing.assert_array_equal(probabilities, before)


def test_likelihood_and_accuracy_agree_with_scikit_learn(predictions):
    probabilities, labels = predictions
    theirs = log_loss(labels, probabilities, labels=range(6))
    assert negative_log_likelihood(probabilities, labels) == pytest.approx(theirs)
    assert accuracy(probabilities, labels) == accuracy_score(labels, probabilities.argmax(axis=1))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_label_of_probability_zero_is_clipped_at_1e_minus_20(dtype):
    probabilities = np.array([[1.0, 0.0]], dtype)
    assert negative_log_likelihood(probabilities, [1]) == pytest.approx(-np.log(1e-20))


def test_one_hot_labels_mean_the_same_as_integers(predictions):
    probabilities, labels = predictions
    for metric in (brier_score, negative_log_likelihood, accuracy):
        assert metric(probabilities, np.eye(6)[labels]) == metric(probabilities, labels)


def test_float32_sums_lose_nothing_over_many_samples():
    probabilities = np.tile(np.array([[0.1, 0.9]], np.float32), (200_000, 1))
    expected = 2 * float(np.float32(0.1)) ** 2
    assert brier_score(probabilities, np.ones(200_000, int)) == pytest.approx(expected, rel=1e-6)
