from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax

from densecal.calibrators.spline import SplineCalibration, spline_offsets


def natural_spline_basis(t, knots):
    """The truncated power basis of natural cubic splines (Hastie, Tibshirani, Friedman, eq. 5.4)."""

    def d(k):
        return (np.clip(t - knots[k], 0, None) ** 3 - np.clip(t - knots[-1], 0, None) ** 3) / (knots[-1] - knots[k])

    columns = [np.ones_like(t), t] + [d(k) - d(len(knots) - 2) for k in range(len(knots) - 2)]
    return np.stack(columns, axis=1)


def test_the_correction_is_the_derivative_of_the_least_squares_spline(ten_classes):
    logits, labels = ten_classes
    probabilities = softmax(logits, axis=1)
    order = np.argsort(probabilities.max(axis=1))
    scores = probabilities.max(axis=1)[order]
    correct = (probabilities.argmax(axis=1) == labels)[order]
    n = len(scores)
    t = np.arange(n + 1) / n
    h = np.append(0, np.cumsum(correct - scores)) / n
    knots = np.linspace(0, 1, 6)
    fitted = np.linalg.lstsq(natural_spline_basis(t, knots), h, rcond=None)[0]
    step = 1e-5
    middle = (np.arange(n) + 0.5) / n
    slope = (
        (natural_spline_basis(middle + step, knots) - natural_spline_basis(middle - step, knots)) @ fitted / (2 * step)
    )
    calibrator = SplineCalibration().fit(logits, labels)
    np.testing.assert_allclose(calibrator.confidence(logits)[order], np.clip(scores + slope, 0, 1), atol=2e-5)


def test_between_two_validation_scores_the_nearer_one_weighs_more(ten_classes):
    calibrator = SplineCalibration().fit(*ten_classes)
    calibrator.scores_, calibrator.calibrated_ = np.array([0.5, 0.9]), np.array([0.6, 0.7])
    score = 0.6
    row = np.full((1, 10), np.log((1 - score) / 9))
    row[0, 3] = np.log(score)
    assert calibrator.confidence(row)[0] == pytest.approx(0.75 * 0.6 + 0.25 * 0.7)


def test_beyond_the_validation_scores_the_end_values_hold(ten_classes):
    calibrator = SplineCalibration().fit(*ten_classes)
    sure = np.zeros((1, 10))
    sure[0, 2] = 1000.0
    assert calibrator.confidence(sure)[0] == calibrator.calibrated_[-1]
    assert calibrator.confidence(np.zeros((1, 10)))[0] == calibrator.calibrated_[0]


def test_equal_scores_share_one_calibrated_score_whatever_their_order():
    scores = np.repeat([0.5, 0.8], [6, 4])
    correct = np.array([1, 0, 1, 0, 0, 0, 1, 1, 0, 1], dtype=float)
    expected = spline_offsets(scores, correct, knots=6)
    shuffled = np.array([5, 9, 0, 3, 8, 1, 7, 2, 6, 4])
    again = spline_offsets(scores[shuffled], correct[shuffled], knots=6)
    np.testing.assert_array_equal(expected[0], [0.5, 0.8])
    np.testing.assert_array_equal(expected, again)


def test_the_cumulative_error_all_but_vanishes(make_overconfident):
    logits, labels = make_overconfident(4000, 10)
    confidence = SplineCalibration().fit(logits, labels).confidence(logits)
    correct = logits.argmax(axis=1) == labels
    order = np.argsort(softmax(logits, axis=1).max(axis=1), kind="stable")

    def largest_gap(scores):
        return np.abs(np.cumsum((scores - correct)[order])).max() / len(scores)

    before, after = largest_gap(softmax(logits, axis=1).max(axis=1)), largest_gap(confidence)
    assert after < 0.05 * before


def test_the_distribution_keeps_the_score_and_shares_the_rest_in_proportion(ten_classes):
    logits, labels = ten_classes
    calibrator = SplineCalibration().fit(logits, labels)
    plain, calibrated = softmax(logits, axis=1), calibrator.predict_proba(logits)
    top = logits.argmax(axis=1)
    rows = np.arange(len(logits))
    score = calibrator.confidence(logits)
    kept = np.isclose(calibrated[rows, top], score, atol=1e-12)
    assert 0.5 < kept.mean() < 1  # shares of an over-confident row are peaked, so some scores are raised
    raised = ~kept
    assert (calibrated[raised, top[raised]] > score[raised]).all()
    rest, plain_rest = calibrated.copy(), plain.copy()
    rest[rows, top] = plain_rest[rows, top] = 0
    np.testing.assert_allclose(
        rest / rest.sum(axis=1, keepdims=True), plain_rest / plain_rest.sum(axis=1, keepdims=True), atol=1e-8
    )


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 6), st.floats(0.0, 1.0), st.sampled_from([np.float32, np.float64]), st.integers(0, 2**31))
def test_no_score_however_low_changes_the_predicted_class(classes, score, dtype, seed):
    rng = np.random.default_rng(seed)
    logits = rng.integers(-3, 4, size=(20, classes)).astype(dtype)
    calibrator = SplineCalibration().fit(logits, rng.integers(0, classes, size=20))
    calibrator.is_identity_ = False
    calibrator.calibrated_ = np.full_like(calibrator.calibrated_, score)
    calibrated = calibrator.predict_proba(logits)
    np.testing.assert_array_equal(calibrated.argmax(axis=1), logits.argmax(axis=1))
    np.testing.assert_allclose(calibrated.sum(axis=1), 1, rtol=1e-5)


def test_a_probability_of_exactly_one_leaves_a_valid_distribution(ten_classes):
    calibrator = SplineCalibration().fit(*ten_classes)
    sure = np.zeros((1, 10))
    sure[0, 7] = 5000.0
    calibrated = calibrator.predict_proba(sure)[0]
    assert calibrated[7] == pytest.approx(calibrator.calibrated_[-1])
    np.testing.assert_allclose(np.delete(calibrated, 7), (1 - calibrated[7]) / 9)


def test_a_single_knot_is_refused(ten_classes):
    with pytest.raises(ValueError, match="knots must be at least 2, got 1"):
        SplineCalibration(knots=1).fit(*ten_classes)
