"""Fits of temperatures: one for all samples, or DAC's S = w_0 + sum_l w_l s_l for each, from its density scores s_l."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.optimize import brentq, lsq_linear

from densecal.errors import warn_user

if TYPE_CHECKING:
    from densecal.calibrators.temperature import TemperedLoss

PILOT_ROWS = 2000
"""A fit starts on about this many rows, evenly spaced."""
LOG_TEMPERATURE_BOUND = float(np.log(1e4))
TRAINING_TEMPERATURE, TRAINING_MISTAKES = 0.5, 0.01
"""So low a temperature with so few mistakes is typical of training data, which the classifier has memorised. An
underconfident classifier on new data has a higher temperature or more mistakes."""
CERTAIN = 1e-6
"""Tolerance for equality with the squared error at which all confidences are 1: 2 per mistake."""
SMALLEST_BIAS = 1e-3
"""Lower bound of w_0, relative to the plain temperature, so that S > 0 for every input."""
NEARLY_CERTAIN = 0.25
"""Below this fraction of the plain temperature, confidences are almost exactly 1."""
REPORTED_SHARE = 0.01
"""The smallest share of nearly certain inputs that a warning reports."""
NEGLIGIBLE = 1e-3
"""Below this fraction of the mean temperature, the distances count as unused."""
TOLERANCE, MOST_ITERATIONS = 1e-10, 60
CURVATURE_FLOOR = 1e-9
"""Smallest eigenvalue of the model relative to the largest, so that steps in flat directions are finite."""


def solve_temperature(tempered: TemperedLoss, *, weights: Any = None, warn: bool = True) -> float:
    """Return the temperature with the smallest mean loss, found on a logarithmic scale within bounds.

    The sign change of the slope is bracketed from T = 1 on a subset of the rows, then from the result on all rows, and
    located with Brent's method. ``weights`` count the samples of a validation set without mistakes, and are otherwise
    not used.
    """
    mistakes = tempered.share_of_mistakes()
    if mistakes == 0:
        counts = np.ones(tempered.samples) if weights is None else weights
        found = _solve_without_mistakes(tempered, counts, warn=warn)
        if found is not None:
            return found
    pilot = tempered.subset(slice(None, None, max(1, tempered.samples // PILOT_ROWS)))
    log_temperature = _solve_log_temperature(tempered, _solve_log_temperature(pilot, 0.0, 0.5), 0.02)
    temperature = float(np.exp(log_temperature))
    is_certain = mistakes > 0 and tempered.loss == "brier" and abs(tempered.mean(temperature) - 2 * mistakes) < CERTAIN
    if is_certain:
        # The result must not be worse than the uncalibrated logits in squared error.
        temperature = min((solve_temperature(tempered.subset(slice(None), "nll"), warn=warn), 1.0), key=tempered.mean)
    if not warn:
        return temperature
    if mistakes == 0:
        warn_user(
            "Every validation sample is classified correctly, but some have two equal largest logits, so the "
            f"temperature, {temperature:g}, is unreliable. Use logits that are not rounded, clipped or masked."
        )
    elif log_temperature >= LOG_TEMPERATURE_BOUND:
        warn_user(
            f"The temperature is at the largest useful value, {temperature:g}, because the logits are not informative "
            "about the labels. Check that the labels belong to these samples."
        )
    elif is_certain:
        warn_user(
            f"The validation set has so few errors ({mistakes:.2%}) that the squared error is "
            "smallest if all confidences are 1. The temperature was fitted by likelihood instead and is "
            f"{temperature:.3g}. Use a larger validation set."
        )
    elif temperature < TRAINING_TEMPERATURE and mistakes < TRAINING_MISTAKES:
        warn_user(
            f"The temperature is {temperature:.3g}, which raises the confidences, and only "
            f"{mistakes:.2%} of the validation samples are misclassified. That is typical of data "
            "that the classifier was trained on, and confidences fitted on them are too high for new data. Check that "
            "the validation data are not training data."
        )
    return temperature


def _solve_without_mistakes(tempered: TemperedLoss, counts: Any, *, warn: bool) -> float | None:
    """Return the temperature at which the mean log confidence is what so many correct samples support.

    Their likelihood has no optimum above zero. The temperature is at most 1, because there is no evidence of
    overconfidence. None if some rows have two equal largest logits, which no temperature can separate.
    """
    nll = tempered.subset(slice(None), "nll")
    n_correct = float(counts.sum())
    supported = (n_correct + 1) / (n_correct + 2)  # Laplace's rule of succession

    def gap(log_temperature: float) -> float:
        return float(np.average(nll(np.exp(-log_temperature))[0], weights=counts)) + float(np.log(supported))

    lowest = -3 * LOG_TEMPERATURE_BOUND  # also enough for logits in very small units
    if gap(lowest) > 0:
        return None
    temperature = 1.0 if gap(0.0) <= 0 else float(np.exp(brentq(gap, lowest, 0.0, xtol=1e-12)))
    if warn:
        warn_user(
            "Every validation sample is classified correctly, so a temperature near 0 would fit best. It is "
            f"{temperature:.3g} instead, because {n_correct:,.0f} correct predictions support a mean confidence of "
            f"{supported:.2%}. Use a larger validation set that the classifier was not trained on."
        )
    return temperature


def _solve_log_temperature(tempered: TemperedLoss, start: float, step: float) -> float:
    @cache
    def slope(log_temperature: float) -> float:
        inverse = float(np.exp(-log_temperature))
        # d/d log T = -u d/du. The factor u keeps both ends of the bracket on the same scale.
        return -inverse * float(tempered(inverse)[1].mean())

    # Go downhill with growing steps until the slope changes sign.
    here = float(np.clip(start, -LOG_TEMPERATURE_BOUND, LOG_TEMPERATURE_BOUND))
    direction = -np.sign(slope(here))
    if direction == 0:
        return here
    while abs(here) < LOG_TEMPERATURE_BOUND or direction * here < 0:
        there = float(np.clip(here + direction * step, -LOG_TEMPERATURE_BOUND, LOG_TEMPERATURE_BOUND))
        if slope(there) * direction >= 0:
            return float(brentq(slope, here, there, xtol=1e-5))
        here, step = there, step * 2
    return here


def fit_clean(tempered: TemperedLoss, scores: Any) -> dict[str, Any]:
    """Return the attributes that DAC learns from clean data alone, with scores of shape (n_samples, n_layers)."""
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
    return {
        "weights_": temperature * weights[:-1] / scale,
        "bias_": float(temperature * weights[-1]),
        "loss_": loss,
        "plain_temperature_": temperature,
        "temperature_scaling_loss_": scaling_loss,
        "uncalibrated_loss_": tempered.mean(1.0),
        "n_iterations_": best.iterations,
        "converged_": best.converged,
    }


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

    stride = max(1, len(design) // PILOT_ROWS)
    pilots = [descend(slice(None, None, stride), start) for start in (plain, shared)]
    best = min(pilots, key=lambda fit: fit.value)
    return best if stride == 1 else descend(slice(None), best.point)


class Descent(NamedTuple):
    """The result of a minimisation."""

    point: Any
    value: float
    iterations: int
    converged: bool


def bounded_newton(derivatives: Callable[[Any], tuple[float, Any, Any]], start: Any, lowest: Any) -> Descent:
    """Minimise a smooth function over ``point >= lowest``. The value never exceeds that at the start.

    ``derivatives`` returns the value, the gradient and the Hessian at a point. Each step minimises the quadratic model
    within the bounds exactly and is halved until the function decreases. Negative curvatures of the model are replaced
    by their absolute values.
    """
    point = np.maximum(np.asarray(start, dtype=np.float64), lowest)
    value, gradient, hessian = derivatives(point)
    for iteration in range(1, MOST_ITERATIONS + 1):
        step, promised = _bounded_step(gradient, hessian, lowest - point)
        if promised <= TOLERANCE * max(abs(value), 1e-12):
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
    return Descent(point, value, MOST_ITERATIONS, converged=False)


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


def describe_clean_fit(fit: Mapping[str, Any], scores: Any) -> dict[str, float]:
    """Return each layer's share of the mean temperature; warn if distances are unused or confidences certain."""
    layers, weights, bias = fit["layers_"], fit["weights_"], fit["bias_"]
    temperature, tried_shift = fit["plain_temperature_"], fit["clean_cost_"] is not None
    parts = weights * scores.mean(axis=0)
    distance_part, shares = float(parts.sum()), layer_shares(layers, parts)
    if layers and distance_part < NEGLIGIBLE * (distance_part + bias):
        advice = (
            " Fit it to stay calibrated under shift: pass labelled shifted data, such as perturbed copies of the "
            "validation inputs, with fit(..., shifted=...), for a CalibratedClassifier with X_shifted= and y_shifted=. "
            "For images, calibrate(..., perturb=True) makes them."
        )
        warn_user(
            "DAC does not use the distances: all layer weights are almost zero, so it acts as temperature scaling with "
            f"T = {bias:.3g}. On clean validation data the errors of an accurate classifier hardly depend on the "
            f"distances.{'' if tried_shift else advice}"
        )
    certain = float((scores @ weights + bias < NEARLY_CERTAIN * temperature).mean())
    if certain >= REPORTED_SHARE:
        nearest = max(shares, key=lambda layer: shares[layer])
        warn_user(
            f"DAC gives {certain:.0%} of the validation inputs less than a quarter of the temperature of temperature "
            f"scaling ({temperature:.3g}), and therefore confidences of almost exactly 1: none of the inputs nearest "
            f"to the training data in {nearest!r} is misclassified. With few validation samples this may be chance. "
            "Omit this layer, use more validation samples, or use 'ts'."
        )
    return shares


def layer_shares(layers: Sequence[str], parts: Any) -> dict[str, float]:
    """Return each layer's share of the sum of the parts, or zeros if that is zero."""
    total = float(parts.sum())
    shares = parts / total if total > 0 else np.zeros_like(parts)
    return dict(zip(layers, map(float, shares), strict=True))
