"""Parameterized temperature scaling: a small network predicts the temperature of each sample."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from densecal.arrays import Array, ArrayLike, ArrayOrTensor, by_row_blocks, is_torch, namespace, softmax, to_numpy
from densecal.calibrators.base import Calibrator
from densecal.calibrators.citation import Citation
from densecal.calibrators.solvers.logit_rows import centre_rows, for_fit
from densecal.calibrators.solvers.masks import fill_masked, mask_gap
from densecal.calibrators.solvers.small_network import SmallNetwork, train
from densecal.calibrators.solvers.temperature_fit import solve_temperature
from densecal.calibrators.temperature import TemperedLoss

TOP_LOGITS = 10
HIDDEN = 5
RESTARTS = 4
PILOT_ROWS = 4000
RELATIVE_FLOOR = 0.01
"""Lower bound of the temperatures, relative to the temperature of temperature scaling."""
LIKELIHOOD_TOLERANCE = 1e-3
"""The NLL on the validation set may exceed that of temperature scaling by this fraction, not by more."""


class ParameterizedTemperatureScaling(Calibrator):
    r"""Divide the logits of each sample by its own temperature: softmax(z / T(z)) (PTS).

    .. math:: T(z) = |\text{net}(z_{(1)}, ..., z_{(10)})| + \varepsilon

    The inputs of the network are the 10 largest logits in descending order (or all of them if there are fewer). It has
    two hidden layers of 5 units with ReLU. The mean of each row is subtracted first, so the result does not depend on a
    constant added to a row. The order of the classes, and therefore the accuracy, does not change.

    L-BFGS minimises the squared error, from several random initialisations of which each starts at the solution of
    temperature scaling. The paper avoids overfitting by stopping long before convergence. Here weight decay prevents
    it: with few samples the temperatures are nearly equal.

    Parameters
    ----------
    weight_decay : float, default 5.0
        Penalty on the squared weights (for standardised inputs), added to the summed squared error.
    seed : int, default 0
        Seed of the initial weights.

    Attributes
    ----------
    network_ : ndarray
        The parameters of the network: weights, then biases, of each layer.
    temperature_floor_ : float
        :math:`\varepsilon`, 1 % of the temperature of temperature scaling.
    mask_gap_ : float
        How far below the largest of its row a logit masks its class, which then does not influence the temperature.

    Examples
    --------
    >>> logits = [[4.0, 0.0]] * 4
    >>> calibrator = ParameterizedTemperatureScaling().fit(logits, [0, 0, 0, 1])
    >>> calibrator.predict_proba(logits)[0].round(3)
    array([0.75, 0.25])
    """

    short_name: ClassVar[str] = "pts"
    full_name: ClassVar[str] = "Parameterized temperature scaling"
    accuracy_preserving: ClassVar[bool] = True
    learned: ClassVar[tuple[str, ...]] = ("network_", "temperature_floor_", "mask_gap_")
    citation: ClassVar[Citation] = Citation(
        "Parameterized Temperature Scaling for Boosting the Expressive Power in Post-Hoc Uncertainty Calibration",
        "Tomani, Cremers, Buettner",
        "ECCV",
        2022,
    )

    def __init__(self, weight_decay: float = 5.0, seed: int = 0) -> None:
        self.weight_decay = weight_decay
        self.seed = seed

    def temperatures(self, logits: ArrayLike) -> ArrayOrTensor:
        """Return the temperature of each sample, of shape (n_samples,)."""
        temperatures: ArrayOrTensor = by_row_blocks(self._temperatures, self._fitted_samples(logits, None, None).logits)
        return temperatures

    def _fit(self, logits: Array, labels: Array) -> None:
        logits, labels = for_fit(logits, labels)
        decay = self._network.decay(self.weight_decay, len(logits))  # first: it checks the option
        tempered = TemperedLoss(logits, labels, "brier")
        single = solve_temperature(tempered)
        inputs = to_numpy(top_logits(logits))
        mean, scale = inputs.mean(axis=0), inputs.std(axis=0)
        scale[scale < 1e-12] = 1  # a constant input is not scaled
        parameters = self._train(tempered, (inputs - mean) / scale, single, decay)
        self.network_ = self._network.absorb(parameters, mean=mean, scale=scale, factor=single)
        self.temperature_floor_ = RELATIVE_FLOOR * single
        self.mask_gap_ = mask_gap(single)

    def _probabilities(self, logits: Array) -> Array:
        return softmax(logits, self._temperatures(logits)[:, None])

    def _temperatures(self, logits: Array) -> Array:
        xp = namespace(logits)
        output = self._network(self.network_, top_logits(fill_masked(logits, self.mask_gap_)[0]))
        return xp.astype(xp.abs(output) + self.temperature_floor_, logits.dtype)

    @property
    def _network(self) -> SmallNetwork:
        return SmallNetwork(min(TOP_LOGITS, self.n_classes_), HIDDEN)

    def _train(self, tempered: TemperedLoss, inputs: Any, single: float, decay: Any) -> Any:
        """Return parameters for standardised inputs and an output in units of the temperature ``single``."""
        network, samples = self._network, tempered.samples
        constant = np.where(np.arange(len(decay)) == len(decay) - 1, 1 - RELATIVE_FLOOR, 0.0)
        if tempered.share_of_mistakes() == 0:  # the squared error falls with every temperature
            return constant
        random = np.random.default_rng(self.seed)
        starts = [network.start(random, output=1 - RELATIVE_FLOOR) for _ in range(RESTARTS)]
        # The starts are compared on a subset of the samples, and only the best is fitted on all of them.
        rows = slice(None, None, max(1, samples // PILOT_ROWS))
        if samples > PILOT_ROWS:
            pilot = Objective(network, tempered.subset(rows), inputs[rows], single, decay)
            starts = [train(pilot, starts, max_iterations=60, tolerance=1e-7)]
        objective = Objective(network, tempered, inputs, single, decay)
        found = train(objective, starts, constant, max_iterations=150, tolerance=1e-7)
        # With few errors the squared error drives temperatures to 0 at the expense of the likelihood.
        likelihood = tempered.subset(slice(None), "nll")
        temperatures = single * (np.abs(network(found, inputs)) + RELATIVE_FLOOR)
        highest = likelihood.mean(single) * (1 + LIKELIHOOD_TOLERANCE)
        return found if likelihood(1 / temperatures)[0].mean() <= highest else constant


class Objective:
    """The mean squared error with the temperatures of a network, plus weight decay, and its gradient."""

    def __init__(self, network: SmallNetwork, tempered: TemperedLoss, inputs: Any, single: float, decay: Any) -> None:
        self._network, self._tempered, self._inputs = network, tempered, inputs
        self._single, self._decay = single, decay

    def __call__(self, parameters: Any) -> tuple[float, Any]:
        """Return the value and the gradient with respect to the parameters."""
        output, backward = self._network.with_gradient(parameters, self._inputs)
        inverse = 1 / (self._single * (np.abs(output) + RELATIVE_FLOOR))
        loss, slope = self._tempered(inverse)
        by_output = -slope * inverse**2 * np.sign(output) * (self._single / len(loss))
        decayed = self._decay * parameters
        return float(loss.mean() + decayed @ parameters), backward(by_output) + 2 * decayed


def top_logits(logits: Array) -> Array:
    """Return the 10 largest centred logits of each row (or all, if fewer) in descending order, in float64."""
    xp = namespace(logits)
    centred = xp.astype(centre_rows(logits), xp.float64)
    count = min(TOP_LOGITS, logits.shape[1])
    if is_torch(logits):
        return centred.topk(count, dim=1).values
    largest = np.partition(centred, -count, axis=1)[:, -count:]
    return np.ascontiguousarray(np.sort(largest, axis=1)[:, ::-1])
