from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax
from sklearn.isotonic import IsotonicRegression

from densecal.calibrators.isotonic import MulticlassIsotonic, OneVsRestIsotonic, fit_isotonic
from densecal.calibrators.solvers.logit_rows import interpolate
from densecal.errors import CalibrationWarning


def sklearn_map(scores, positive):
    return IsotonicRegression(out_of_bounds="clip").fit(scores, positive)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 20), st.booleans()), min_size=1, max_size=60))
def test_the_reduced_regression_equals_the_one_on_all_pairs_also_with_ties(pairs):
    scores = np.array([score / 20 for score, _ in pairs])
    positive = np.array([is_positive for _, is_positive in pairs])
    positive[0] = True  # a class without positives has no map
    nodes, values = fit_isotonic(scores, scores[positive])
    assert np.all(np.diff(nodes) > 0)
    x = np.linspace(-0.1, 1.1, 97)
    np.testing.assert_allclose(interpolate(x, nodes, values), sklearn_map(scores, positive).predict(x), atol=1e-9)


def test_irm_is_one_map_for_all_classes_and_its_rows_are_normalised(ten_classes):
    logits, labels = ten_classes
    plain = softmax(logits, axis=1)
    expected = sklearn_map(plain.ravel(), np.eye(10)[labels].ravel()).predict(plain.ravel()).reshape(plain.shape)
    expected += 1e-9 * plain
    expected /= expected.sum(axis=1, keepdims=True)
    calibrated = MulticlassIsotonic().fit(logits, labels).predict_proba(logits)
    np.testing.assert_allclose(calibrated, expected, atol=1e-6)


def test_ir_is_one_map_for_each_class_and_its_rows_are_normalised(ten_classes):
    logits, labels = ten_classes
    plain = softmax(logits, axis=1)
    expected = np.stack([sklearn_map(plain[:, c], labels == c).predict(plain[:, c]) for c in range(10)], axis=1)
    expected += 1e-9 * plain
    expected /= expected.sum(axis=1, keepdims=True)
    calibrated = OneVsRestIsotonic().fit(logits, labels).predict_proba(logits)
    np.testing.assert_allclose(calibrated, expected, atol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_irm_keeps_the_top_class_where_the_map_is_flat_and_floats_tie(dtype):
    logits = np.array([[1.0, 1.0, 0.0], [0.0, 1.0, 1.0], [2.0, 2.0, 2.0]] * 20, dtype=dtype)
    labels = np.array([0, 2, 1] * 20)
    calibrator = MulticlassIsotonic().fit(logits, labels)
    assert calibrator.values_.max() < 0.6  # the two largest lie on one plateau
    nearly = logits.copy()
    nearly[:, 2] = np.nextafter(nearly.max(axis=1), dtype(np.inf))
    calibrated = calibrator.predict_proba(nearly)
    assert calibrated.dtype == dtype
    assert (calibrated.argmax(axis=1) == 2).all()
    np.testing.assert_allclose(calibrated.sum(axis=1), 1, rtol=1e-6)


def test_a_row_below_every_positive_comes_back_uncalibrated():
    calibrator = MulticlassIsotonic().fit(np.array([[9.0, 0.0, 0.0]] * 5), [0] * 5)
    row = np.array([[0.3, 0.1, 0.0]])
    calibrator.thresholds_, calibrator.values_ = np.array([0.9, 1.0]), np.array([0.0, 1.0])
    np.testing.assert_allclose(calibrator.predict_proba(row), softmax(row, axis=1), atol=1e-12)


def test_a_class_missing_from_the_labels_keeps_its_probability_and_is_named(make_overconfident):
    logits, labels = make_overconfident(200, 4)
    with pytest.warns(CalibrationWarning, match=r"1 of 4 classes are missing .*\(3\)"):
        calibrator = OneVsRestIsotonic().fit(logits[labels != 3], labels[labels != 3])
    unseen = np.array([[-5.0, -5.0, -5.0, 5.0]])
    assert calibrator.predict_proba(unseen)[0, 3] > 0.8


def test_the_map_of_many_pairs_is_stored_as_few_breakpoints(make_overconfident):
    logits, labels = make_overconfident(400, 100)
    calibrator = MulticlassIsotonic().fit(logits, labels)
    assert len(calibrator.thresholds_) < 200
    assert np.all(np.diff(calibrator.values_) >= 0)


def test_interpolation_is_the_same_for_arrays_and_tensors():
    torch = pytest.importorskip("torch")
    nodes, values = np.array([0.0, 0.2, 0.9]), np.array([0.1, 0.1, 0.7])
    x = np.linspace(-1, 2, 61).reshape(1, 61)
    for n in (1, 3):
        tensors = (torch.from_numpy(part) for part in (x, nodes[:n], values[:n]))
        np.testing.assert_allclose(interpolate(*tensors).numpy(), np.interp(x, nodes[:n], values[:n]))
