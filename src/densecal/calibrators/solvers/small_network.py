"""A network of two small ReLU layers and one output, with analytic gradient and initialisation, without torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from scipy.optimize import minimize

from densecal.arrays import Array, asarray_like, namespace


@dataclass
class SmallNetwork:
    """The widths of a network. Its parameters are one flat vector."""

    inputs: int
    hidden: int

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Shapes of the weights and biases of the layers."""
        width = self.hidden
        return [(self.inputs, width), (width,), (width, width), (width,), (width, 1), (1,)]

    def unpack(self, parameters: Any) -> list[Any]:
        """Split the vector into the weights and biases of the layers."""
        ends = list(accumulate((math.prod(shape) for shape in self.shapes), initial=0))
        # Use plain slices, which all tracers support.
        parts = [parameters[start:end] for start, end in pairwise(ends)]
        return [part.reshape(shape) for part, shape in zip(parts, self.shapes, strict=True)]

    def decay(self, weight_decay: float, samples: int) -> Any:
        """Return the penalty per squared parameter, relative to a mean loss; that of biases is zero."""
        if weight_decay < 0:
            raise ValueError(f"weight_decay must not be negative, got {weight_decay}.")
        is_weight = np.concatenate([np.full(math.prod(shape), len(shape) == 2) for shape in self.shapes])
        return weight_decay / samples * is_weight

    def start(self, random: np.random.Generator, output: float) -> Any:
        """Return parameters with random hidden layers and a constant output."""
        w1, w2 = (random.normal(scale=np.sqrt(2 / shape[0]), size=shape) for shape in self.shapes[:4:2])
        b1, b2 = (random.normal(scale=0.5, size=shape) for shape in self.shapes[1:4:2])
        layers = [w1, b1, w2, b2, np.zeros((self.hidden, 1)), np.full(1, output)]
        return np.concatenate([part.reshape(-1) for part in layers])

    def __call__(self, parameters: Any, x: Array) -> Array:
        """Return the output for each row of inputs, of shape (n_rows,), on the device of the inputs."""
        w1, b1, w2, b2, w3, b3 = (asarray_like(part, x) for part in self.unpack(parameters))
        xp = namespace(x)
        first = xp.clip(x @ w1 + b1, 0, None)
        second = xp.clip(first @ w2 + b2, 0, None)
        return (second @ w3 + b3)[:, 0]

    def with_gradient(self, parameters: Any, x: Any) -> tuple[Any, Any]:
        """Return the output and a function from the gradient in the output to the gradient in the parameters."""
        w1, b1, w2, b2, w3, b3 = self.unpack(parameters)
        first = np.maximum(x @ w1 + b1, 0)
        second = np.maximum(first @ w2 + b2, 0)

        def backward(by_output: Any) -> Any:
            by_second = by_output[:, None] * w3[:, 0] * (second > 0)
            by_first = (by_second @ w2.T) * (first > 0)
            parts = [
                x.T @ by_first,
                by_first.sum(axis=0),
                first.T @ by_second,
                by_second.sum(axis=0),
                second.T @ by_output,
                by_output.sum(keepdims=True),
            ]
            return np.concatenate([part.reshape(-1) for part in parts])

        return (second @ w3 + b3)[:, 0], backward

    def absorb(self, parameters: Any, *, mean: Any, scale: Any, factor: float) -> Any:
        """Return parameters for raw instead of standardised inputs, with the output multiplied by ``factor``."""
        w1, b1, w2, b2, w3, b3 = self.unpack(parameters)
        w1 = w1 / scale[:, None]
        layers = [w1, b1 - mean @ w1, w2, b2, w3 * factor, b3 * factor]
        return np.concatenate([part.reshape(-1) for part in layers])


def train(
    objective: Callable[[Any], tuple[float, Any]],
    starts: Sequence[Any],
    *others: Any,
    max_iterations: int,
    tolerance: float,
) -> Any:
    """Return the best of the parameters that L-BFGS finds from each start, and of ``others``."""
    options = {"maxiter": max_iterations, "ftol": tolerance, "gtol": 1e-8}
    found = [minimize(objective, start, jac=True, method="L-BFGS-B", options=options).x for start in starts]
    return min([*others, *found], key=lambda parameters: objective(parameters)[0])
