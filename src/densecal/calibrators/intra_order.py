"""Diagonal intra-order-preserving calibration: one increasing function, applied to every logit."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from scipy.optimize import minimize
from scipy.sparse import csr_array, vstack

from densecal.arrays import Array, asarray_like, namespace, row_blocks, softmax, to_numpy
from densecal.calibrators.base import Calibrator
from densecal.calibrators.citation import Citation
from densecal.calibrators.solvers.rows import by_row_blocks, centre_rows, for_fit
from densecal.calibrators.solvers.small_network import SmallNetwork
from densecal.calibrators.solvers.tempering import TemperedLoss, solve_temperature

NODES = 512
NETWORK = SmallNetwork(inputs=1, hidden=10)
RESTARTS = 3
SMALLEST_SLOPE = 1e-8
LONGEST_GRID = 300.0
LOWEST_EXPONENT = -690.0
"""Exponentials below exp(-690) would leave the range of a float64."""


class IntraOrderPreserving(Calibrator):
    r"""Apply one strictly increasing function to every logit: softmax(f(z)) (DIA, the DIAG variant).

    .. math:: f(t) = \int_0^t \text{ELU}(\text{net}(u)) + 1 + 10^{-8} \, du

    with a network of one input, two hidden layers of 10 with ReLU, and one output. The integrand is positive, so
    f keeps the order of the classes, and so the accuracy. (An offset of f would cancel in the softmax.) The
    parameters minimise the negative log-likelihood, with a little weight decay, from temperature scaling's
    solution on. Each row of logits is centred at its mean first, so that a constant added to a row changes nothing.

    f lives on a grid of 512 nodes over the validation logits, and :math:`e^f` is linear between them. The row's
    partition function is then linear in the 512 values of :math:`e^f`, so the pairs of a sample and a class are
    sorted into the grid once, and a step of the fit costs two sparse matrix-vector products and a network on 512
    inputs. Beyond the grid f is a straight line with the slope at its end.

    Parameters
    ----------
    weight_decay : float, default 1.0
        Squared weights (of an input scaled to [-1, 1]) count this much beside the likelihood summed over the samples.
    seed : int, default 0
        Seed of the starts.

    Attributes
    ----------
    nodes_ : ndarray of shape (512,)
        The grid, in units of a centred logit.
    values_, slopes_ : ndarray of shape (512,)
        f and its derivative there.

    Examples
    --------
    >>> import numpy as np
    >>> logits = np.array([[4.0, 0.0]] * 4)
    >>> calibrator = IntraOrderPreserving().fit(logits, [0, 0, 0, 1])
    >>> calibrator.predict_proba(logits)[0].round(3)
    array([0.75, 0.25])
    """

    short_name: ClassVar[str] = "dia"
    full_name: ClassVar[str] = "Diagonal intra-order-preserving"
    accuracy_preserving: ClassVar[bool] = True
    learned: ClassVar[tuple[str, ...]] = ("nodes_", "values_", "slopes_")
    citation: ClassVar[Citation] = Citation(
        "Intra Order-Preserving Functions for Calibration of Multi-Class Neural Networks",
        "Rahimi, Shaban, Cheng, Hartley, Boots",
        "NeurIPS",
        2020,
    )
    fit_loss: ClassVar[str] = "nll"

    nodes_: Any
    values_: Any
    slopes_: Any

    def __init__(self, weight_decay: float = 1.0, seed: int = 0) -> None:
        self.weight_decay = weight_decay
        self.seed = seed

    def _fit(self, logits: Array, labels: Array) -> None:
        if self.weight_decay < 0:
            raise ValueError(f"weight_decay must not be negative, got {self.weight_decay}.")
        logits, labels = (to_numpy(part) for part in for_fit(logits, labels))
        centred = centre_rows(logits)
        low, high = float(centred.min()), float(centred.max())
        if high <= low:  # every row is constant: any grid will do
            high = low + 1.0
        # In units of the single temperature the start's slope is one; the grid must not outgrow a float's exponent.
        unit = max(solve_temperature(TemperedLoss(logits, labels, "nll")), (high - low) / LONGEST_GRID)
        self.nodes_ = np.linspace(low, high, NODES)
        likelihood = GridLikelihood(centred, labels, self.nodes_, (high - low) / (NODES - 1) / unit)
        slopes, self.values_ = likelihood.function(self._train(likelihood))
        self.slopes_ = slopes / unit

    def _train(self, likelihood: GridLikelihood) -> Any:
        is_weight = np.concatenate([np.full(shape, len(shape) == 2).reshape(-1) for shape in NETWORK.shapes])
        decay = self.weight_decay / likelihood.samples * is_weight

        def objective(parameters: Any) -> tuple[float, Any]:
            loss, gradient = likelihood(parameters)
            return loss + float(decay @ parameters**2), gradient + 2 * decay * parameters

        constant = np.zeros(len(decay))
        best, best_value = constant, objective(constant)[0]
        random = np.random.default_rng(self.seed)
        for _ in range(RESTARTS):
            options = {"maxiter": 300, "ftol": 1e-9, "gtol": 1e-8}
            start = NETWORK.start(random, output=0.0)
            result = minimize(objective, start, jac=True, method="L-BFGS-B", options=options)
            if result.fun < best_value:
                best, best_value = result.x, result.fun
        return best

    def _probabilities(self, logits: Array) -> Array:
        return by_row_blocks(self._block_probabilities, logits)

    def _block_probabilities(self, logits: Array) -> Array:
        xp = namespace(logits)
        mapped = self._function(xp.astype(centre_rows(logits), xp.float64))
        return xp.astype(softmax(mapped), logits.dtype)

    def _function(self, centred: Array) -> Array:
        """Return f of float64 values: the logarithm of the linear interpolation of exp(f), a line beyond the grid."""
        xp = namespace(centred)
        nodes, values, slopes = (asarray_like(part, centred) for part in (self.nodes_, self.values_, self.slopes_))
        low, high = nodes[0], nodes[-1]
        position = (centred.clip(low, high) - low) * ((NODES - 1) / (high - low))
        cell = xp.astype(position, xp.int64).clip(0, NODES - 2)
        growth = xp.expm1((values[1:] - values[:-1]).clip(None, -LOWEST_EXPONENT))
        inside = values[cell] + xp.log1p((position - cell) * growth[cell])
        return inside + slopes[0] * (centred - low).clip(None, 0) + slopes[-1] * (centred - high).clip(0, None)


class GridLikelihood:
    """The negative log-likelihood of a network's function on a grid, and its gradient.

    Parameters
    ----------
    centred, labels : ndarray
        Centred logits (N, C) and labels (N,).
    nodes : ndarray
        A uniform grid that covers the logits.
    step : float
        The distance between nodes in the units of the integral.
    """

    def __init__(self, centred: Any, labels: Any, nodes: Any, step: float) -> None:
        self.samples, self._step = len(centred), step
        self._inputs = np.linspace(-1, 1, len(nodes))[:, None]
        self._classes = _grid_weights(centred, nodes)
        self._label = _grid_weights(centred[np.arange(self.samples), labels][:, None], nodes)

    def function(self, parameters: Any) -> tuple[Any, Any]:
        """Return the slopes of f and its values on the nodes, zero at the last one."""
        slopes = _elu_plus_one(NETWORK(parameters, self._inputs))
        return slopes, self._integral(slopes)

    def __call__(self, parameters: Any) -> tuple[float, Any]:
        """Return the mean negative log-likelihood and its gradient by the network's parameters."""
        output, backward = NETWORK.with_gradient(parameters, self._inputs)
        slopes = _elu_plus_one(output)
        exponential = np.exp(np.maximum(self._integral(slopes), LOWEST_EXPONENT))
        total, of_label = self._classes @ exponential, self._label @ exponential
        loss = float(np.mean(np.log(total) - np.log(of_label)))
        by_value = exponential * (self._classes.T @ (1 / total) - self._label.T @ (1 / of_label)) / self.samples
        # A cell's area counts, with a minus, in every value to its left: the values are measured from the right end.
        by_area = -np.cumsum(by_value[:-1]) * (self._step / 2)
        by_slope = np.append(by_area, 0) + np.append(0, by_area)
        return loss, backward(by_slope * np.where(output > 0, 1, np.exp(np.minimum(output, 0))))

    def _integral(self, slopes: Any) -> Any:
        """Integrate by the trapezoid rule, from the right end: exponentials of the values then stay below one."""
        areas = (slopes[1:] + slopes[:-1]) * (self._step / 2)
        return -np.append(np.cumsum(areas[::-1])[::-1], 0)


def _elu_plus_one(output: Any) -> Any:
    return np.where(output > 0, output + 1, np.exp(np.minimum(output, 0))) + SMALLEST_SLOPE


def _grid_weights(values: Any, nodes: Any) -> csr_array:
    """Return W (N, nodes) such that W e sums, over each row's values, the linear interpolation of e there."""
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
