from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import check_grad
from scipy.special import softmax

from densecal.calibrators.parameterized_temperature import (
    Objective,
    ParameterizedTemperatureScaling,
    top_logits,
)
from densecal.calibrators.solvers.small_network import SmallNetwork
from densecal.calibrators.temperature import TemperatureScaling, TemperedLoss


def squared_error(probabilities, labels):
    return ((probabilities - np.eye(probabilities.shape[1])[labels]) ** 2).sum(axis=1).mean()


def two_sharpnesses(samples, seed):
    """Half of the samples are over-confident by 4 and have large logits, half by 1 and small ones."""
    rng = np.random.default_rng(seed)
    honest = rng.normal(scale=2.0, size=(samples, 6))
    sharpness = np.where(np.arange(samples) % 2 == 0, 4.0, 1.0)[:, None]
    return honest * sharpness, (honest + rng.gumbel(size=honest.shape)).argmax(axis=1), sharpness[:, 0]


def test_the_gradient_is_that_of_finite_differences(make_overconfident):
    logits, labels = make_overconfident(40, 4)
    network = SmallNetwork(4, 5)
    random = np.random.default_rng(0)
    parameters = network.start(random, output=1.0)
    parameters = parameters + random.normal(scale=0.1, size=parameters.shape)
    decay = np.linspace(0, 0.1, len(parameters))
    inputs = top_logits(logits) / 10

    def plain(vector):
        temperatures = 2.0 * (np.abs(network(vector, inputs)) + 0.01)
        return squared_error(softmax(logits / temperatures[:, None], axis=1), labels) + vector @ (decay * vector)

    objective = Objective(network, TemperedLoss(logits, labels, "brier"), inputs, single=2.0, decay=decay)
    assert objective(parameters)[0] == pytest.approx(plain(parameters))
    assert check_grad(plain, lambda vector: objective(vector)[1], parameters) < 1e-5


def test_it_finds_temperatures_that_depend_on_the_sample():
    logits, labels, _ = two_sharpnesses(4000, seed=0)
    calibrator = ParameterizedTemperatureScaling().fit(logits, labels)
    fresh, fresh_labels, fresh_sharpness = two_sharpnesses(4000, seed=1)
    temperatures = calibrator.temperatures(fresh)
    assert np.median(temperatures[fresh_sharpness == 4]) > 2 * np.median(temperatures[fresh_sharpness == 1])
    single = TemperatureScaling().fit(logits, labels)
    assert (
        squared_error(calibrator.predict_proba(fresh), fresh_labels)
        < squared_error(single.predict_proba(fresh), fresh_labels) - 0.005
    )


def test_the_probabilities_are_those_of_the_logits_over_the_temperatures(ten_classes):
    logits, labels = ten_classes
    calibrator = ParameterizedTemperatureScaling().fit(logits, labels)
    expected = softmax(logits / calibrator.temperatures(logits)[:, None], axis=1)
    np.testing.assert_allclose(calibrator.predict_proba(logits), expected, atol=1e-12)


def test_the_fit_is_never_worse_than_a_single_temperature(make_overconfident):
    for samples in (30, 300):
        logits, labels = make_overconfident(samples, 5)
        ours = ParameterizedTemperatureScaling().fit(logits, labels).predict_proba(logits)
        single = TemperatureScaling().fit(logits, labels).predict_proba(logits)
        assert squared_error(ours, labels) <= squared_error(single, labels) + 1e-9


def test_infinite_weight_decay_is_temperature_scaling_by_the_same_loss(make_overconfident):
    logits, labels = make_overconfident(200, 5)
    calibrator = ParameterizedTemperatureScaling(weight_decay=1e9).fit(logits, labels)
    single = TemperatureScaling(loss="brier").fit(logits, labels)
    np.testing.assert_allclose(calibrator.temperatures(logits), single.temperature_, rtol=1e-3)


def test_the_inputs_are_the_ten_largest_logits_in_falling_order():
    logits = np.random.default_rng(0).normal(size=(5, 30))
    expected = np.sort(logits - logits.mean(axis=1, keepdims=True), axis=1)[:, ::-1][:, :10]
    np.testing.assert_allclose(top_logits(logits), expected)
    torch = pytest.importorskip("torch")
    np.testing.assert_allclose(top_logits(torch.from_numpy(logits)).numpy(), expected)


def test_no_temperature_is_ever_zero(ten_classes):
    calibrator = ParameterizedTemperatureScaling().fit(*ten_classes)
    strange = np.random.default_rng(0).normal(scale=1e4, size=(2000, 10))
    assert calibrator.temperatures(strange).min() >= calibrator.temperature_floor_ > 0
    assert np.isfinite(calibrator.predict_proba(strange)).all()


def test_many_samples_go_through_the_pilot_and_still_beat_a_single_temperature():
    logits, labels, _ = two_sharpnesses(9000, seed=2)
    ours = ParameterizedTemperatureScaling().fit(logits, labels).predict_proba(logits)
    single = TemperatureScaling().fit(logits, labels).predict_proba(logits)
    assert squared_error(ours, labels) < squared_error(single, labels) - 0.005


def test_a_negative_weight_decay_is_refused_before_the_fit(ten_classes, monkeypatch):
    monkeypatch.setattr("densecal.calibrators.parameterized_temperature.solve_temperature", None)
    with pytest.raises(ValueError, match="weight_decay must not be negative, got -1"):
        ParameterizedTemperatureScaling(weight_decay=-1).fit(*ten_classes)
