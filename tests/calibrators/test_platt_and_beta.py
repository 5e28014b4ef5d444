"""Platt scaling and beta calibration, against scikit-learn and against known maps."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_classification
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from densecal import BetaCalibration, MatrixScaling, PlattScaling, TemperatureScaling
from densecal.metrics import negative_log_likelihood

pytestmark = pytest.mark.filterwarnings("ignore::densecal.errors.CalibrationWarning")


def two_columns(scores):
    return np.stack([-scores / 2, scores / 2], axis=1)


@pytest.fixture(scope="module")
def biased():
    """Scores whose true log-odds are 0.5 s - 1.5, and the labels."""
    rng = np.random.default_rng(0)
    scores = rng.normal(0, 3, 20_000)
    return scores, (rng.random(20_000) < expit(0.5 * scores - 1.5)).astype(int)


def test_platt_is_scikit_learns_sigmoid_of_a_decision_function():
    X, y = make_classification(400, random_state=0)
    machine = FrozenEstimator(LogisticRegression().fit(X[:200], y[:200]))
    theirs = CalibratedClassifierCV(machine, method="sigmoid", cv=2, ensemble=False).fit(X[200:], y[200:])
    scores = machine.decision_function(X[200:])
    ours = PlattScaling().fit(two_columns(scores), y[200:])
    expected = theirs.predict_proba(X[200:])
    np.testing.assert_allclose(ours.predict_proba(two_columns(scores)), expected, atol=1e-4)


@pytest.mark.parametrize("method", [PlattScaling, BetaCalibration])
def test_the_intercept_that_temperature_scaling_lacks_is_found(biased, method):
    scores, labels = biased
    logits = two_columns(scores)
    fitted = method().fit(logits[:10_000], labels[:10_000])
    np.testing.assert_allclose(fitted.predict_proba(logits)[:, 1], expit(0.5 * scores - 1.5), atol=0.03)
    plain = TemperatureScaling().fit(logits[:10_000], labels[:10_000])
    losses = [negative_log_likelihood(m.predict_proba(logits[10_000:]), labels[10_000:]) for m in (fitted, plain)]
    assert losses[0] < 0.8 * losses[1]


def test_beta_finds_slopes_that_differ_between_the_ends():
    rng = np.random.default_rng(0)
    p = rng.uniform(0.01, 0.99, 40_000)
    truth = expit(0.4 * np.log(p) - 1.6 * np.log1p(-p) + 0.3)
    labels = (rng.random(len(p)) < truth).astype(int)
    fitted = BetaCalibration().fit(np.log(np.stack([1 - p, p], axis=1)), labels)
    found = [fitted.positive_slopes_[1], fitted.negative_slopes_[1], fitted.intercepts_[1]]
    np.testing.assert_allclose(found, [0.4, 1.6, 0.3], atol=0.15)
    mirrored = [fitted.negative_slopes_[0], fitted.positive_slopes_[0], -fitted.intercepts_[0]]
    np.testing.assert_allclose(mirrored, found, atol=1e-3)


def test_separable_classes_have_a_finite_answer():
    logits = two_columns(np.array([-3.0, -2.0, 2.0, 3.0]))
    fitted = BetaCalibration().fit(logits, [0, 0, 1, 1])
    assert np.isfinite(fitted.predict_proba(logits)).all() and 0.9 < fitted.confidence(logits).min() < 1
    with pytest.raises(ValueError, match=r"penalty must be 0 or more, got -1"):
        BetaCalibration(penalty=-1).fit(logits, [0, 0, 1, 1])


def test_scores_without_overlap_and_beyond_floats_stay_probabilities():
    logits = np.array([[0.0, 2000.0], [2000.0, 0.0], [0.0, -1e9], [1.0, 1.0]] * 5)
    for method in (PlattScaling, BetaCalibration):
        probabilities = method().fit(logits, [1, 0, 0, 1] * 5).predict_proba(logits)
        np.testing.assert_allclose(probabilities.sum(axis=1), 1)
        assert np.isfinite(probabilities).all()


def test_weights_stay_with_their_samples_where_masked_ones_are_left_out():
    rng = np.random.default_rng(0)
    logits, labels, weights = rng.normal(0, 2, (200, 3)), rng.integers(0, 3, 200), rng.uniform(0.1, 5, 200)
    options = {"off_diagonal_penalty": 0.1, "bias_penalty": 0.1}
    expected = MatrixScaling(**options).fit(logits, labels, sample_weight=weights)
    masked = np.insert(logits, [0, 100], [[0.0, 1.0, -1e9]] * 2, axis=0)
    fitted = MatrixScaling(**options).fit(
        masked, np.insert(labels, [0, 100], 1), sample_weight=np.insert(weights, [0, 100], 1.0)
    )
    np.testing.assert_allclose(fitted.predict_proba(logits), expected.predict_proba(logits), atol=1e-4)


@pytest.mark.parametrize("method", [PlattScaling, BetaCalibration, MatrixScaling])
def test_weights_that_sum_to_one_give_what_weights_around_one_give(method):
    rng = np.random.default_rng(0)
    logits, weights = rng.normal(0, 2, (400, 3)), rng.uniform(0.5, 1.5, 400)
    weights[::7] = 0
    weights /= weights[weights > 0].mean()
    labels = np.where(rng.random(400) < 0.7, logits.argmax(axis=1), rng.integers(0, 3, 400))
    expected = method().fit(logits, labels, sample_weight=weights).predict_proba(logits)
    for scale in (1 / weights.sum(), 1e-310):
        found = method().fit(logits, labels, sample_weight=scale * weights).predict_proba(logits)
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_weights_that_are_none_are_refused():
    logits = two_columns(np.array([-1.0, 0.5, 1.0]))
    for weights, message in (([1, 2], "one weight per sample"), ([1, -1, 1], "not negative"), ([0, 0, 0], "positive")):
        with pytest.raises(ValueError, match=message):
            BetaCalibration().fit(logits, [0, 1, 1], sample_weight=weights)
    with pytest.raises(ValueError, match="'ts' takes no sample_weight"):
        TemperatureScaling().fit(logits, [0, 1, 1], sample_weight=[1, 1, 1])
