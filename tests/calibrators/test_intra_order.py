from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import check_grad
from scipy.special import logsumexp, softmax

from densecal.calibrators.intra_order import NETWORK, GridLikelihood, IntraOrderPreserving
from densecal.calibrators.temperature import TemperatureScaling


def nll(probabilities, labels):
    return -np.log(probabilities[np.arange(len(labels)), labels]).mean()


def random_parameters(seed, scale=0.3):
    random = np.random.default_rng(seed)
    parameters = NETWORK.start(random, output=0.2)
    return parameters + random.normal(scale=scale, size=parameters.shape)


@pytest.fixture
def likelihood(make_overconfident):
    logits, labels = make_overconfident(50, 4, sharpness=1.0)
    centred = logits - logits.mean(axis=1, keepdims=True)
    nodes = np.linspace(centred.min(), centred.max(), 512)
    return GridLikelihood(centred, labels, nodes, nodes[1] - nodes[0]), centred, labels, nodes


def test_the_gradient_is_that_of_finite_differences(likelihood):
    on_grid, *_ = likelihood
    parameters = random_parameters(0)
    assert check_grad(lambda x: on_grid(x)[0], lambda x: on_grid(x)[1], parameters) < 1e-5


def test_the_grid_gives_the_likelihood_of_the_exact_integral(likelihood):
    _, centred, labels, nodes = likelihood
    parameters = random_parameters(1)

    def slope(t):
        output = NETWORK(parameters, np.array([[2 * (t - nodes[0]) / (nodes[-1] - nodes[0]) - 1]]))[0]
        return (output if output > 0 else np.expm1(output)) + 1 + 1e-8

    mapped = np.vectorize(lambda t: quad(slope, 0, t, epsabs=1e-6, limit=100)[0])(centred[:10])
    expected = np.mean(logsumexp(mapped, axis=1) - mapped[np.arange(10), labels[:10]])
    ten = GridLikelihood(centred[:10], labels[:10], nodes, nodes[1] - nodes[0])
    assert ten(parameters)[0] == pytest.approx(expected, abs=2e-4)


def test_the_fitted_likelihood_is_that_of_the_probabilities(ten_classes):
    logits, labels = ten_classes
    calibrator = IntraOrderPreserving().fit(logits, labels)
    centred = logits - logits.mean(axis=1, keepdims=True)
    exponential = np.exp(calibrator.values_)
    interpolated = np.interp(centred, calibrator.nodes_, exponential)
    expected = interpolated / interpolated.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(calibrator.predict_proba(logits), expected, atol=1e-9)


def test_the_start_is_temperature_scaling_and_the_end_no_worse(make_overconfident):
    for samples in (30, 1000):
        logits, labels = make_overconfident(samples, 5)
        single = TemperatureScaling(loss="nll").fit(logits, labels).predict_proba(logits)
        ours = IntraOrderPreserving().fit(logits, labels).predict_proba(logits)
        assert nll(ours, labels) <= nll(single, labels) + 2e-4


def test_it_undoes_a_distortion_that_no_temperature_can(make_overconfident):
    honest, labels = make_overconfident(6000, 40, sharpness=1.0)
    distorted = np.where(honest > 0, 3 * honest, 0.4 * honest)
    fitted, fresh = slice(0, 3000), slice(3000, None)
    ours = IntraOrderPreserving().fit(distorted[fitted], labels[fitted]).predict_proba(distorted[fresh])
    single = TemperatureScaling(loss="nll").fit(distorted[fitted], labels[fitted]).predict_proba(distorted[fresh])
    best = nll(softmax(honest[fresh], axis=1), labels[fresh])
    assert nll(ours, labels[fresh]) - best < 0.6 * (nll(single, labels[fresh]) - best)


def test_the_function_increases_everywhere_also_far_beyond_the_grid(ten_classes):
    calibrator = IntraOrderPreserving().fit(*ten_classes)
    low, high = calibrator.nodes_[0], calibrator.nodes_[-1]
    t = np.linspace(low - 100, high + 100, 5001)
    values = calibrator._function(t)
    assert np.all(np.diff(values) > 0)
    np.testing.assert_allclose(np.diff(values)[:10] / (t[1] - t[0]), calibrator.slopes_[0], rtol=1e-6)
    np.testing.assert_allclose(np.diff(values)[-10:] / (t[1] - t[0]), calibrator.slopes_[-1], rtol=1e-6)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_logits_one_last_digit_apart_keep_their_order(ten_classes, dtype):
    calibrator = IntraOrderPreserving().fit(*ten_classes)
    logits = np.zeros((50, 10), dtype=dtype)
    logits[:, 0] = np.linspace(1, 40, 50)
    logits[:, 9] = np.nextafter(logits[:, 0], dtype(np.inf))
    assert (calibrator.predict_proba(logits).argmax(axis=1) == 9).all()


def test_a_perfect_classifier_with_huge_logits_stays_finite():
    labels = np.arange(60) % 3
    logits = np.eye(3)[labels] * 1e4 + np.random.default_rng(0).normal(size=(60, 3))
    with pytest.warns(UserWarning, match="Every validation sample is classified correctly"):
        calibrated = IntraOrderPreserving().fit(logits, labels).predict_proba(logits)
    assert np.isfinite(calibrated).all()
    assert calibrated.max(axis=1).min() > 0.99


def test_a_negative_weight_decay_is_refused_before_the_fit(ten_classes, monkeypatch):
    monkeypatch.setattr("densecal.calibrators.intra_order.solve_temperature", None)
    with pytest.raises(ValueError, match="weight_decay must not be negative, got -1"):
        IntraOrderPreserving(weight_decay=-1).fit(*ten_classes)
