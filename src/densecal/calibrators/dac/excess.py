"""The temperature of the shift fit, which grows with the excess of the distances over those of clean inputs."""

from __future__ import annotations

from typing import Any, NamedTuple, Self

import numpy as np

from densecal.arrays import Array, asarray_like, is_torch, namespace, to_numpy

KNOT_QUANTILES = (0.2, 0.4, 0.6, 0.8)
RIDGE = 1e-6
SMALLEST_SPREAD = 1e-6
"""A column with a smaller standard deviation, relative to its values, is constant."""


class Excess(NamedTuple):
    """The excess of the distances in each layer over those of clean inputs with the same confidence.

    Clean inputs with low confidence have larger distances. A shifted input has a larger distance than its confidence
    explains. The excess is the distance minus the distance expected from the logits, in standard deviations, or zero if
    it is negative.

    The expected distance is piecewise linear in two variables, with hinges at their validation quantiles: the margin
    between the two largest logits, and the height of the largest logit above the mean.

    Attributes
    ----------
    knots : array of shape (2, 4)
        The hinges of the margin and of the height.
    coefficients : array of shape (11, n_layers)
        The intercept, then the margin and its four hinges, then the height and its four hinges.
    spread : array of shape (n_layers,)
        Standard deviation of the residuals of the clean distances.
    """

    knots: Any
    coefficients: Any
    spread: Any

    @classmethod
    def learn(cls, logits: Array, distances: Array) -> Self:
        """Regress the clean distances on the margin and height of the logits."""
        measured = _margin_and_height(logits)
        knots = np.stack([np.quantile(to_numpy(column), KNOT_QUANTILES) for column in measured]).astype(np.float64)
        design = to_numpy(_design(measured, knots)).astype(np.float64)
        target = to_numpy(distances).astype(np.float64)
        scale = design.std(axis=0)
        scale[scale <= SMALLEST_SPREAD * np.abs(design).max(axis=0)] = np.inf  # its coefficient becomes zero
        scale[0] = 1.0  # the intercept
        scaled = design / scale
        gram = scaled.T @ scaled / len(scaled) + RIDGE * np.eye(scaled.shape[1])
        coefficients = np.linalg.solve(gram, scaled.T @ target / len(scaled)) / scale[:, None]
        spread = (target - design @ coefficients).std(axis=0)
        return cls(knots, coefficients, np.maximum(spread, 1e-6))

    def __call__(self, logits: Array, distances: Array) -> Array:
        """Return the excess of inputs, of shape (n_samples, n_layers)."""
        return measure_residuals(logits, distances, self).clip(0.0, None)


def measure_residuals(logits: Array, distances: Array, excess: tuple[Array, Array, Array]) -> Array:
    """Return (distance - expected) / spread, of shape (n_samples, n_layers); its mean over clean inputs is zero.

    ``excess`` holds the values of an `Excess`: torch.compile traces plain tuples, not the class.
    """
    knots, coefficients, spread = excess
    design = asarray_like(_design(_margin_and_height(logits), knots), distances)
    expected = design @ asarray_like(coefficients, distances)
    return (distances - expected) / asarray_like(spread, distances)


def _margin_and_height(logits: Array) -> tuple[Array, Array]:
    if is_torch(logits):
        top = logits.topk(2, dim=1).values
        largest, second = top[:, 0], top[:, 1]
    else:
        top = np.partition(logits, -2, axis=1)
        largest, second = top[:, -1], top[:, -2]
    return largest - second, largest - logits.mean(1)


def _design(measured: tuple[Array, Array], knots: Any) -> Array:
    xp = namespace(measured[0])
    columns = [xp.ones_like(measured[0])[:, None]]
    for column, own_knots in zip(measured, asarray_like(knots, measured[0]), strict=True):
        columns += [column[:, None], (column[:, None] - own_knots).clip(0.0, None)]
    return xp.concat(columns, axis=1)
