"""Diagonal intra-order-preserving calibration: apply one increasing function to every logit."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from scipy.sparse import csr_array, vstack

from densecal.arrays import Array, asarray_like, namespace, row_blocks, softmax, to_numpy
from densecal.calibrators.base import Calibrator
from densecal.calibrators.citation import Citation
from densecal.calibrators.solvers.logit_rows import centre_rows, for_fit
from densecal.calibrators.solvers.masks import fill_masked, hide_masked, mask_gap
from densecal.calibrators.solvers.small_network import SmallNetwork, train
from densecal.calibrators.solvers.temperature_fit import solve_temperature
from densecal.calibrators.temperature import TemperedLoss

NODES = 512
NETWORK = SmallNetwork(inputs=1, hidden=10)
RESTARTS = 3
SMALLEST_SLOPE = 1e-8
LONGEST_GRID = 300.0
LOWEST_EXPONENT = -690.0
"""Exponentials of smaller values underflow in float64."""


class IntraOrderPreserving(Calibrator):
    r"""Apply one strictly increasing function to every logit: softmax(f(z)) (DIA, the DIAG variant).

    .. math:: f(t) = \int_0^t \text{ELU}(\text{net}(u)) + 1 + 10^{-8} \, du

    The network has one input, two hidden layers of 10 units with ReLU, and one output. The integrand is positive, so f
    preserves the order of the classes and the accuracy. (An offset of f would cancel in the softmax.) The parameters
    minimise the negative log-likelihood with weight decay, starting at the solution of temperature scaling. The mean of
    each row of logits is subtracted first, so the result does not depend on a constant added to a row.

    f is stored on a grid of 512 nodes over the validation logits, and :math:`e^f` is linear between the nodes, so an
    iteration of the fit costs two sparse matrix-vector products. Beyond the grid f is linear, with the slope at its
    end. A logit 300 temperatures or more below the largest of its row masks its class: the probability is zero.

    Parameters
    ----------
    weight_decay : float, default 1.0
        Penalty on the squared weights (for an input scaled to [-1, 1]), added to the summed negative log-likelihood.
    seed : int, default 0
        Seed of the initial weights.

    Attributes
    ----------
    nodes_ : ndarray of shape (512,)
        The grid, in units of the centred logits.
    values_, slopes_ : ndarray of shape (512,)
        f and its derivative at the nodes.
    mask_gap_ : float
        How far below the largest of its row a logit masks its class.

    Examples
    --------
    >>> logits = [[4.0, 0.0]] * 4
    >>> calibrator = IntraOrderPreserving().fit(logits, [0, 0, 0, 1])
    >>> calibrator.predict_proba(logits)[0].round(3)
    array([0.75, 0.25])
    """

    short_name: ClassVar[str] = "dia"
    full_name: ClassVar[str] = "Diagonal intra-order-preserving"
    accuracy_preserving: ClassVar[bool] = True
    learned: ClassVar[tuple[str, ...]] = ("nodes_", "values_", "slopes_", "mask_gap_")
    citation: ClassVar[Citation] = Citation(
        "Intra Order-Preserving Functions for Calibration of Multi-Class Neural Networks",
        "Rahimi, Shaban, Cheng, Hartley, Boots",
        "NeurIPS",
        2020,
    )
    fit_loss: ClassVar[str] = "nll"

    def __init__(self, weight_decay: float = 1.0, seed: int = 0) -> None:
        self.weight_decay = weight_decay
        self.seed = seed

    def _fit(self, logits: Array, labels: Array) -> None:
        logits, labels = (to_numpy(part) for part in for_fit(logits, labels))
        decay = NETWORK.decay(self.weight_decay, len(logits))  # first: it checks the option
        centred = centre_rows(logits)
        low, high = float(centred.min()), float(centred.max())
        if high <= low:  # every row is constant, so any grid works
            high = low + 1.0
        # In units of the temperature the initial slope is one. The length of the grid is limited to prevent underflow.
        tempered = TemperedLoss(logits, labels, "nll")
        temperature = solve_temperature(tempered)
        unit = max(temperature, (high - low) / LONGEST_GRID)
        self.nodes_ = np.linspace(low, high, NODES)
        likelihood = GridLikelihood(centred, labels, self.nodes_, (high - low) / (NODES - 1) / unit)
        slopes, self.values_ = likelihood.function(self._train(likelihood, decay, tempered.share_of_mistakes() > 0))
        self.slopes_ = slopes / unit
        self.mask_gap_ = mask_gap(temperature)

    def _train(self, likelihood: GridLikelihood, decay: Any, has_mistakes: bool) -> Any:
        constant, random = np.zeros(len(decay)), np.random.default_rng(self.seed)
        if not has_mistakes:  # the likelihood rises with every slope
            return constant

        def objective(parameters: Any) -> tuple[float, Any]:
            loss, gradient = likelihood(parameters)
            return loss + float(decay @ parameters**2), gradient + 2 * decay * parameters

        starts = [NETWORK.start(random, output=0.0) for _ in range(RESTARTS)]
        return train(objective, starts, constant, max_iterations=300, tolerance=1e-9)

    def _probabilities(self, logits: Array) -> Array:
        xp = namespace(logits)
        filled, masked = fill_masked(logits, self.mask_gap_)
        mapped = self._function(xp.astype(centre_rows(filled), xp.float64))
        return xp.astype(softmax(hide_masked(mapped, masked)), logits.dtype)

    def _function(self, centred: Array) -> Array:
        """Return f of float64 values: log of the linear interpolation of exp(f), and linear beyond the grid."""
        xp = namespace(centred)
        nodes, values, slopes = (asarray_like(part, centred) for part in (self.nodes_, self.values_, self.slopes_))
        low, high = nodes[0], nodes[-1]
        position = (centred.clip(low, high) - low) * ((NODES - 1) / (high - low))
        cell = xp.astype(position, xp.int64).clip(0, NODES - 2)
        growth = xp.expm1((values[1:] - values[:-1]).clip(None, -LOWEST_EXPONENT))
        inside = values[cell] + xp.log1p((position - cell) * growth[cell])
        return inside + slopes[0] * (centred - low).clip(None, 0) + slopes[-1] * (centred - high).clip(0, None)


class GridLikelihood:
    """The negative log-likelihood of a network's function on a grid of spacing ``step`` in units of the integral."""

    def __init__(self, centred: Any, labels: Any, nodes: Any, step: float) -> None:
        self.samples, self._step = len(centred), step
        self._inputs = np.linspace(-1, 1, len(nodes))[:, None]
        self._classes = _grid_weights(centred, nodes)
        self._label = _grid_weights(centred[np.arange(self.samples), labels][:, None], nodes)

    def function(self, parameters: Any) -> tuple[Any, Any]:
        """Return the slopes and the values of f at the nodes."""
        slopes = _elu_plus_one(NETWORK(parameters, self._inputs))
        return slopes, self._integral(slopes)

    def __call__(self, parameters: Any) -> tuple[float, Any]:
        """Return the mean negative log-likelihood and its gradient with respect to the parameters."""
        output, backward = NETWORK.with_gradient(parameters, self._inputs)
        slopes = _elu_plus_one(output)
        exponential = np.exp(np.maximum(self._integral(slopes), LOWEST_EXPONENT))
        total, of_label = self._classes @ exponential, self._label @ exponential
        loss = float(np.mean(np.log(total) - np.log(of_label)))
        by_value = exponential * (self._classes.T @ (1 / total) - self._label.T @ (1 / of_label)) / self.samples
        # The integral starts at the right end, so a cell's area enters every value to its left with a minus sign.
        by_area = -np.cumsum(by_value[:-1]) * (self._step / 2)
        by_slope = np.append(by_area, 0) + np.append(0, by_area)
        return loss, backward(by_slope * np.where(output > 0, 1, np.exp(np.minimum(output, 0))))

    def _integral(self, slopes: Any) -> Any:
        """Integrate with the trapezoid rule from the right end, so that exponentials of the values are at most one."""
        areas = (slopes[1:] + slopes[:-1]) * (self._step / 2)
        return -np.append(np.cumsum(areas[::-1])[::-1], 0)


def _elu_plus_one(output: Any) -> Any:
    return np.where(output > 0, output + 1, np.exp(np.minimum(output, 0))) + SMALLEST_SLOPE


def _grid_weights(values: Any, nodes: Any) -> csr_array:
    """Return W, of shape (n_rows, n_nodes), such that W e sums the interpolation of e over the values of each row."""
    low, count = float(nodes[0]), len(nodes)
    per_step = (count - 1) / (float(nodes[-1]) - low)
    parts = []
    for rows in row_blocks(len(values), max(count, values.shape[1]) * 8, 1 << 24):
        position = (values[rows].astype(np.float64) - low) * per_step
        cell = np.clip(position.astype(np.int64), 0, count - 2)
        share = (position - cell).reshape(-1)
        index = (cell + count * np.arange(len(cell))[:, None]).reshape(-1)
        size = len(cell) * count
        weights = np.bincount(index, 1 - share, size) + np.bincount(index + 1, share, size)
        parts.append(csr_array(weights.reshape(-1, count)))
    return vstack(parts, format="csr")
