from __future__ import annotations

import numpy as np
import pytest

from densecal.estimation.adaptation import map_log_temperatures, return_to_fit, solve_level

ADAPTATION = np.array([[0.0, 0.5, 1.0], [0.2, 0.2, 0.8]])


def test_the_map_interpolates_inside_and_follows_log_s_outside():
    mapped = map_log_temperatures(np.array([-1.0, 0.0, 0.25, 0.75, 1.0, 3.0]), ADAPTATION)
    np.testing.assert_allclose(mapped, [-0.8, 0.2, 0.2, 0.5, 0.8, 2.8])


def test_the_map_is_the_same_for_tensors():
    torch = pytest.importorskip("torch")
    log_s = np.linspace(-2, 3, 50)
    mapped = map_log_temperatures(torch.tensor(log_s), torch.tensor(ADAPTATION))
    np.testing.assert_allclose(mapped.numpy(), map_log_temperatures(log_s, ADAPTATION))


def test_knots_that_coincide_do_not_divide_by_zero():
    adaptation = np.array([[0.3, 0.3, 0.3], [0.1, 0.1, 0.1]])
    np.testing.assert_allclose(map_log_temperatures(np.array([0.0, 0.3, 1.0]), adaptation), [-0.2, 0.1, 0.8])


@pytest.mark.parametrize("accuracy", [0.0, 1.0])
def test_a_level_that_cannot_be_reached_is_bounded(accuracy):
    level = solve_level(np.arange(4), accuracy, lambda rows, log_t: 0.25 + 0.5 / (1 + np.exp(log_t)), start=0.0)
    assert np.isfinite(level)


@pytest.mark.parametrize("accuracy", [0.3, 0.6, 0.97])
@pytest.mark.parametrize("start", [-1.0, 0.4, 2.0])
def test_the_mean_confidence_at_the_level_is_the_accuracy_after_a_few_evaluations(accuracy, start):
    logits = np.random.default_rng(0).normal(0, 4, (500, 5))
    below_top = logits - logits.max(axis=1, keepdims=True)
    evaluated = []

    def mean_confidence(rows, level):
        evaluated.append(level)
        return float(np.mean(1 / np.exp(below_top[rows] * np.exp(-level)).sum(axis=1)))

    level = solve_level(np.arange(500), accuracy, mean_confidence, start)
    assert len(evaluated) <= 8
    assert mean_confidence(np.arange(500), level) == pytest.approx(accuracy, abs=1e-5)


@pytest.mark.parametrize("order", ["alternating", "sorted"])
@pytest.mark.parametrize("scale", [1.0, 1e-3, 1e3])
def test_the_level_depends_neither_on_the_order_of_the_rows_nor_on_the_scale_of_the_logits(order, scale):
    rng = np.random.default_rng(0)
    easy, hard = (rng.normal(0, spread, (2500, 5)) for spread in (8.0, 1.0))
    rows = np.stack([easy, hard], axis=1).reshape(-1, 5) if order == "alternating" else np.concatenate([easy, hard])
    below_top = scale * (rows - rows.max(axis=1, keepdims=True))

    def mean_confidence(some, level):
        return float(np.mean(1 / np.exp(below_top[some] * np.exp(-level)).sum(axis=1)))

    level = solve_level(np.arange(5000), 0.6, mean_confidence, start=np.log(scale))
    assert mean_confidence(np.arange(5000), level) == pytest.approx(0.6, abs=1e-4)


def test_inputs_unlike_the_batch_get_the_temperatures_of_the_fit():
    adaptation = return_to_fit(np.array([1.0, 1.2, 1.5]), np.array([2.0, 2.1, 2.2]))
    nearer, farther = np.array([-1.0, 0.0]), np.array([4.0, 9.0])
    for rows in (nearer, farther):
        np.testing.assert_allclose(map_log_temperatures(rows, adaptation), rows, atol=1e-5)
    between = map_log_temperatures(np.linspace(-1, 6, 500), adaptation)
    assert (np.diff(between) > 0).all()
    np.testing.assert_allclose(map_log_temperatures(np.array([1.0, 1.2, 1.5]), adaptation), [2.0, 2.1, 2.2])
