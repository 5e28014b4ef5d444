from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import check_grad, minimize
from scipy.special import logsumexp

from densecal.calibrators.solvers.affine import residuals
from densecal.calibrators.temperature import TemperatureScaling
from densecal.calibrators.vector_scaling import VectorScaling, vector_loss
from densecal.errors import CalibrationWarning


def plain_nll(scores, labels):
    return float(np.mean(logsumexp(scores, axis=1) - scores[np.arange(len(labels)), labels]))


def test_the_gradient_is_that_of_finite_differences(make_overconfident):
    logits, labels = make_overconfident(60, 4)
    parameters = np.random.default_rng(1).normal(size=8)
    error = check_grad(
        lambda x: plain_nll(logits * x[:4] + x[4:], labels),
        lambda x: vector_loss(x, logits, labels)[1],
        parameters,
    )
    assert error < 1e-5
    assert vector_loss(parameters, logits, labels)[0] == pytest.approx(
        plain_nll(logits * parameters[:4] + parameters[4:], labels)
    )


def test_the_residual_is_the_probability_less_the_label():
    loss, gradient = residuals(np.log([[0.2, 0.3, 0.5]]), np.array([1]))
    assert loss == pytest.approx(-np.log(0.3))
    np.testing.assert_allclose(gradient, [[0.2, -0.7, 0.5]])


def test_the_fit_reaches_scipys_optimum_of_the_plain_objective(make_overconfident):
    logits, labels = make_overconfident(500, 4)
    centred = logits - logits.mean(axis=1, keepdims=True)
    reference = minimize(lambda x: plain_nll(centred * x[:4] + x[4:], labels), np.repeat([1.0, 0.0], 4), tol=1e-9)
    calibrator = VectorScaling().fit(logits, labels)
    ours = plain_nll(centred * calibrator.weights_ + calibrator.biases_, labels)
    assert ours <= reference.fun + 1e-7
    np.testing.assert_allclose(calibrator.weights_, reference.x[:4], atol=2e-3)


def test_it_fits_at_least_as_well_as_a_single_temperature(ten_classes):
    logits, labels = ten_classes
    vector = np.log(VectorScaling().fit(logits, labels).predict_proba(logits))
    single = np.log(TemperatureScaling(loss="nll").fit(logits, labels).predict_proba(logits))
    assert plain_nll(vector, labels) <= plain_nll(single, labels)


def test_it_finds_a_class_that_the_network_favours(make_overconfident):
    logits, labels = make_overconfident(3000, 3, sharpness=1.0)
    favoured = logits + np.array([0.0, 2.0, 0.0])
    calibrator = VectorScaling().fit(favoured, labels)
    honest = np.exp(logits - logsumexp(logits, axis=1, keepdims=True))
    assert np.abs(calibrator.predict_proba(favoured) - honest).mean() < 0.02


def test_a_class_missing_from_the_labels_becomes_almost_impossible_with_a_warning(make_overconfident):
    logits, labels = make_overconfident(300, 4)
    seen = labels != 2
    with pytest.warns(CalibrationWarning, match=r"1 of 4 classes are missing .*probabilities near zero"):
        calibrator = VectorScaling().fit(logits[seen], labels[seen])
    assert calibrator.predict_proba(logits[seen])[:, 2].mean() < 1e-3


def test_float32_logits_find_the_optimum_of_float64_logits(ten_classes):
    logits, labels = ten_classes
    wide = VectorScaling().fit(logits, labels).predict_proba(logits)
    narrow = VectorScaling().fit(logits.astype(np.float32), labels).predict_proba(logits.astype(np.float32))
    assert narrow.dtype == np.float32
    np.testing.assert_allclose(narrow, wide, atol=1e-4)
