"""The paper's DAC: density scores s_l, temperature S = sum_l w_l s_l + w_0, and its fit on clean validation data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import lsq_linear

from densecal.arrays import Array, asarray_like, namespace, to_numpy
from densecal.arrays.checks import check_distances
from densecal.calibrators.solvers.tempering import TemperedLoss, solve_temperature
from densecal.errors import warn_user
from densecal.outputs import Distances

if TYPE_CHECKING:
    from densecal.calibrators.base import Samples
    from densecal.calibrators.dac.method import DAC

SMALLEST_BIAS = 1e-3
"""Lower bound of w_0, relative to the plain temperature, so that S > 0 for every input."""
NEARLY_CERTAIN = 0.25
"""Below this fraction of the plain temperature, confidences are almost exactly 1."""
CURVATURE_FLOOR = 1e-9
"""Smallest eigenvalue of the model relative to the largest, so that steps in flat directions are finite."""
_REPORTED_SHARE = 0.01
_NEGLIGIBLE = 1e-3
_PILOT_ROWS = 2000


def density_scores(dac: DAC, samples: Samples) -> Array:
    """Return the density scores s_l(x) from distances, or from features and the bank."""
    distances = samples.distances
    if distances is None and samples.logits is not None and getattr(dac, "layers_", None) == []:
        distances = samples.logits[:, :0]  # reduced to no layer: there is nothing to measure
    if distances is None:
        if samples.features is None or dac.bank is None:
            raise ValueError(
                "DAC needs the distances of the inputs from the training data: pass features= (with DAC(bank=...)) "
                "or distances= of shape (n_samples, n_layers)."
            )
        distances = dac.measure_features(samples.features)
    if isinstance(distances, Distances):
        if not dac.accepts(distances):
            to = "centres" if distances.k is None else f"neighbour {distances.k}"
            raise ValueError(
                f"distances to {to} in the layers {list(distances.layers)} were measured by "
                "another calibrator or another bank. Measure them with measure(outputs) of this calibrator."
            )
        distances = distances.values
    n_samples = len(distances) if samples.logits is None else samples.logits.shape[0]
    distances = check_distances(distances, n_samples)
    return distances**2 if dac.scores == "published_code" else distances


def clean_temperatures(scores: Array, weights: Array, bias: Array | float) -> Array:
    """Return S = w_0 + sum_l w_l s_l, of shape (n_samples,)."""
    return namespace(scores).sum(scores * asarray_like(weights, scores), axis=1) + bias


@dataclass(frozen=True)
class CleanFit:
    """The result of the clean fit. The losses are means over the validation set."""

    weights: Any
    bias: float
    loss: float
    plain_temperature: float
    temperature_scaling_loss: float
    uncalibrated_loss: float
    n_iterations: int
    converged: bool


def fit_clean(tempered: TemperedLoss, scores: Any) -> CleanFit:
    """Fit the weights of the density scores, a float64 array of shape (n_samples, n_layers)."""
    temperature = float(solve_temperature(tempered))
    scaling_loss = tempered.mean(temperature)
    # In units of the plain temperature and of the mean distance per layer, all parameters are of order one.
    scale = scores.mean(axis=0)
    scale[scale == 0] = 1.0
    design = np.column_stack([scores / scale, np.ones(len(scores))])
    best = minimise_over_weights(tempered, design, temperature)
    weights, loss = best.point, best.value
    is_worse = loss > scaling_loss or scores.shape[1] == 0
    # With few errors the squared error drives S to 0, so fall back to temperature scaling.
    if is_worse or (design @ weights < NEARLY_CERTAIN).mean() > 0.5:
        weights, loss = np.append(np.zeros(scores.shape[1]), 1.0), scaling_loss
    return CleanFit(
        weights=temperature * weights[:-1] / scale,
        bias=float(temperature * weights[-1]),
        loss=loss,
        plain_temperature=temperature,
        temperature_scaling_loss=scaling_loss,
        uncalibrated_loss=tempered.mean(1.0),
        n_iterations=best.iterations,
        converged=best.converged,
    )


def minimise_over_weights(tempered: TemperedLoss, design: Any, temperature: float) -> Descent:
    """Minimise the mean loss over w >= 0 and w_0 > 0, in units of the plain temperature.

    Two pilot fits on a subset of the rows start at the plain temperature and at equal weights of the layers. The better
    one is the start of the fit on all rows.
    """
    columns = design.shape[1]
    plain = np.append(np.zeros(columns - 1), 1.0)
    shared = np.append(np.full(columns - 1, 0.5 / max(1, columns - 1)), 0.5 if columns > 1 else 1.0)
    lowest = np.append(np.zeros(columns - 1), SMALLEST_BIAS)

    def descend(rows: slice, start: Any) -> Descent:
        part, matrix = tempered.subset(rows), temperature * design[rows]

        def derivatives(weights: Any) -> tuple[float, Any, Any]:
            inverse = 1 / (matrix @ weights)
            loss, slope, curvature = part.with_curvature(inverse)
            # With S = 1 / u: dL/dS = -u^2 dL/du and d2L/dS2 = u^4 d2L/du2 + 2 u^3 dL/du.
            by_s = -(inverse**2) * slope
            by_ss = inverse**4 * curvature + 2 * inverse**3 * slope
            count = len(matrix)
            return float(loss.mean()), matrix.T @ by_s / count, (matrix.T * by_ss) @ matrix / count

        return bounded_newton(derivatives, start, lowest)

    stride = max(1, len(design) // _PILOT_ROWS)
    pilots = [descend(slice(None, None, stride), start) for start in (plain, shared)]
    best = min(pilots, key=lambda fit: fit.value)
    return best if stride == 1 else descend(slice(None), best.point)


@dataclass(frozen=True)
class Descent:
    """The result of a minimisation."""

    point: Any
    value: float
    iterations: int
    converged: bool


def bounded_newton(
    derivatives: Callable[[Any], tuple[float, Any, Any]],
    start: Any,
    lowest: Any,
    *,
    tolerance: float = 1e-10,
    max_iterations: int = 60,
) -> Descent:
    """Minimise a smooth function over ``point >= lowest``. The value never exceeds that at the start.

    ``derivatives`` returns the value, the gradient and the Hessian at a point. Each step minimises the quadratic model
    within the bounds exactly (a small bounded least-squares problem) and is halved until the function decreases. The
    method stops when the model predicts a relative decrease below ``tolerance``. Negative curvatures of the model are
    replaced by their absolute values.
    """
    point = np.maximum(np.asarray(start, dtype=np.float64), lowest)
    value, gradient, hessian = derivatives(point)
    for iteration in range(1, max_iterations + 1):
        step, promised = _bounded_step(gradient, hessian, lowest - point)
        if promised <= tolerance * max(abs(value), 1e-12):
            return Descent(point, value, iteration, converged=True)
        for _ in range(12):
            trial = np.maximum(point + step, lowest)
            new_value, new_gradient, new_hessian = derivatives(trial)
            if new_value < value:
                break
            step = step / 2
        else:
            return Descent(point, value, iteration, converged=promised <= 1e-6 * abs(value))
        point, value, gradient, hessian = trial, new_value, new_gradient, new_hessian
    return Descent(point, value, max_iterations, converged=False)


def _bounded_step(gradient: Any, hessian: Any, lowest_step: Any) -> tuple[Any, float]:
    """Minimise g'd + d'Hd/2 over d >= lowest_step; return d and the predicted decrease."""
    eigenvalues, vectors = np.linalg.eigh(hessian)
    eigenvalues = np.maximum(np.abs(eigenvalues), CURVATURE_FLOOR * max(np.abs(eigenvalues).max(), 1e-300))
    root = np.sqrt(eigenvalues)
    # With H = R'R the model is |R d + R^-T g|^2 / 2 up to a constant.
    matrix = root[:, None] * vectors.T
    target = -(vectors.T @ gradient) / root
    step = lsq_linear(matrix, target, bounds=(np.minimum(lowest_step, 0.0), np.inf), method="bvls").x
    return step, float(-(gradient @ step) - 0.5 * np.sum((matrix @ step) ** 2))


def describe_clean_fit(fit: CleanFit, scores: Array, layers: Sequence[str], *, tried_shift: bool) -> dict[str, float]:
    """Return each layer's share of the mean temperature; warn of what the fit must not hide."""
    scores = to_numpy(scores)
    means = scores.mean(axis=0, dtype=np.float64) if layers else np.zeros(0)
    if layers:
        warn_if_distances_are_unused(float(fit.weights @ means), fit.bias, tried_shift=tried_shift)
    shares = layer_shares(layers, fit.weights * means)
    warn_if_certain(scores @ fit.weights + fit.bias, fit.plain_temperature, shares)
    return shares


def layer_shares(layers: Sequence[str], parts: Any) -> dict[str, float]:
    """Return each layer's share of the sum of the parts, or zeros if that is zero."""
    total = float(parts.sum())
    shares = parts / total if total > 0 else np.zeros_like(parts)
    return dict(zip(layers, map(float, shares), strict=True))


def warn_if_distances_are_unused(distance_part: float, bias: float, *, tried_shift: bool) -> None:
    """Warn if the distances contribute almost nothing to the mean temperature; suggest the shift fit if not tried."""
    if distance_part >= _NEGLIGIBLE * (distance_part + bias):
        return
    advice = (
        " Fit it to stay calibrated under shift: pass labelled shifted data, such as perturbed copies of the "
        "validation inputs, with fit(..., shifted=...). For images, calibrate(..., perturb=True) makes them."
    )
    warn_user(
        "DAC does not use the distances: all layer weights are almost zero, so it acts as temperature scaling with "
        f"T = {bias:.3g}. On clean validation data the errors of an accurate classifier hardly depend on the "
        f"distances.{'' if tried_shift else advice}"
    )


def warn_if_certain(temperatures: Any, plain: float, importance: Mapping[str, float]) -> None:
    """Warn if some validation inputs get a much lower temperature than that of temperature scaling."""
    share = float((temperatures < NEARLY_CERTAIN * plain).mean())
    if share < _REPORTED_SHARE:
        return
    nearest = max(importance, key=lambda layer: importance[layer])
    warn_user(
        f"DAC gives {share:.0%} of the validation inputs less than a quarter of the temperature of temperature scaling "
        f"({plain:.3g}), and therefore confidences of almost exactly 1: none of the inputs nearest to the training "
        f"data in {nearest!r} is misclassified. With few validation samples this may be chance. Omit this layer, use "
        "more validation samples, or use 'ts'."
    )
