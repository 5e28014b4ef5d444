from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import check_grad

from densecal.calibrators.solvers.small_network import SmallNetwork


@pytest.mark.parametrize(("inputs", "hidden"), [(1, 10), (4, 5)])
def test_the_gradient_is_that_of_finite_differences(inputs, hidden):
    network = SmallNetwork(inputs, hidden)
    random = np.random.default_rng(0)
    parameters = network.start(random, output=0.5)
    parameters = parameters + random.normal(scale=0.3, size=parameters.shape)
    x, weights = random.normal(size=(20, inputs)), random.normal(size=20)

    def gradient(vector):
        output, backward = network.with_gradient(vector, x)
        return backward(weights * np.cos(output))

    assert check_grad(lambda vector: weights @ np.sin(network(vector, x)), gradient, parameters) < 1e-5


def test_a_start_gives_every_input_the_same_output():
    network = SmallNetwork(3, 5)
    x = np.random.default_rng(1).normal(size=(7, 3))
    np.testing.assert_allclose(network(network.start(np.random.default_rng(2), output=1.25), x), 1.25)


def test_absorbed_units_give_the_output_for_raw_inputs():
    network = SmallNetwork(3, 4)
    random = np.random.default_rng(3)
    parameters = random.normal(size=len(network.start(random, output=1.0)))
    x, mean, scale = random.normal(size=(9, 3)), random.normal(size=3), random.uniform(0.5, 4, size=3)
    absorbed = network.absorb(parameters, mean=mean, scale=scale, factor=2.5)
    np.testing.assert_allclose(network(absorbed, x), 2.5 * network(parameters, (x - mean) / scale))
