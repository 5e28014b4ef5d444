"""The shift fit: the temperature of DAC, fitted on clean and shifted data.

log S(x) = b + sum_l w_l x_l(x) with w_l >= 0, where x_l is the excess of the distance in layer l over that of clean
inputs with the same confidence. The slopes w are fitted on clean and shifted validation data together. Slopes of early
layers are penalised: these layers see the style of an input, which may change while the classifier stays right. The
intercept b is then refitted, mostly on the clean data. ``reproduction/studies/shift_fit.py`` determined the constants,
``reproduction/natural/layer_price.py`` the penalty.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from densecal.arrays import Array, ArrayLike, asarray_like, namespace, to_numpy
from densecal.arrays.checks import check_labels
from densecal.calibrators.base import Samples
from densecal.calibrators.dac.excess import Excess
from densecal.calibrators.dac.guard import (
    accepts_cost,
    check_clean_cost,
    labels_match,
    leave_out_mislabelled,
    measure_clean_cost,
)
from densecal.calibrators.solvers.masks import fill_masked, mask_gap
from densecal.calibrators.solvers.temperature_fit import Descent, bounded_newton, layer_shares, solve_temperature
from densecal.calibrators.temperature import TemperedLoss
from densecal.errors import warn_user
from densecal.outputs import Outputs

if TYPE_CHECKING:
    from densecal.calibrators.dac.method import DAC

FEWEST_CLEAN_SAMPLES = 10
CLEAN_SHARE = 0.5
"""Weight of the clean data in the loss when the slopes are fitted."""
CLEAN_LEVEL = 0.8
"""The intercept between its optimum for clean and shifted data together (0) and that for clean data alone (1)."""
LAYER_PRICE = 30.0
"""Penalty on a slope of 1 in the first layer, in NLL summed over the clean samples; 0 for the last layer."""
ShiftedSet: TypeAlias = Outputs | tuple[ArrayLike, ArrayLike, ArrayLike]
"""Outputs with labels and features, or (logits, labels, distances)."""
Shifted: TypeAlias = ShiftedSet | Sequence[ShiftedSet] | Mapping[str, ShiftedSet]
"""One data set, several, or named domains."""


class ShiftedData(NamedTuple):
    """Logits, labels and density scores of labelled shifted data, and the name of each sample's domain."""

    logits: Array
    labels: Array
    scores: Array
    names: list[str]


def collect_shifted(dac: DAC, shifted: Shifted, clean_shape: tuple[int, int, int]) -> ShiftedData:
    """Concatenate shifted data sets, with the density scores of a DAC.

    ``clean_shape`` holds the numbers of samples, classes and layers of the validation set. Without ``max_clean_cost``
    the labels are not checked; otherwise data sets whose labels seem to be those of other classes are left out.
    """
    n_clean, n_classes, n_layers = clean_shape
    if n_clean < FEWEST_CLEAN_SAMPLES:
        raise ValueError(
            f"A fit with shifted= requires at least {FEWEST_CLEAN_SAMPLES} clean validation samples, got {n_clean}."
        )
    several = _named_sets(shifted)
    if not several:
        raise ValueError("shifted must hold at least one data set, got none. Omit it for the clean fit.")
    parts, names = [], list[str]()
    for key, one in several.items():
        name = f"shifted[{key!r}]"
        if not isinstance(one, Outputs) and not (isinstance(one, tuple) and len(one) == 3):
            raise TypeError(f"{name} must be Outputs or a tuple (logits, labels, distances), got {type(one).__name__}.")
        logits, labels, distances = (one, None, None) if isinstance(one, Outputs) else one
        samples = Samples.of(logits, labels, None, distances, f"{name} logits")
        if samples.labels is None:
            raise ValueError(f"{name} has no labels. Perturbed copies have the labels of the original samples.")
        n_samples, own_classes = samples.logits.shape
        if own_classes != n_classes:
            raise ValueError(f"{name} has {own_classes} classes, but the validation set has {n_classes}.")
        scores = dac._scores(dac._measured(samples._replace(logits=None)))
        if scores.shape[0] != n_samples:
            raise ValueError(f"{name} has logits of {n_samples} samples, but distances of {scores.shape[0]}.")
        if scores.shape[1] != n_layers:
            raise ValueError(f"{name} has {scores.shape[1]} layers, but the validation set has {n_layers}.")
        checked = check_labels(samples.labels, n_samples, n_classes, like=samples.logits)
        parts.append((samples.logits, checked, scores))
        names += [str(key)] * n_samples
    xp = namespace(parts[0][0])
    logits, labels, scores = (xp.concat(columns) for columns in zip(*parts, strict=True))
    collected = ShiftedData(logits, labels, scores, names)
    return collected if dac.max_clean_cost is None else leave_out_mislabelled(collected)


def _named_sets(shifted: Any) -> Mapping[str | int, Any]:
    """Return shifted data sets by their names, or by their positions if they have none."""
    if isinstance(shifted, Mapping):
        return shifted
    is_one = isinstance(shifted, Outputs) or (isinstance(shifted, tuple) and not isinstance(shifted[0], Outputs))
    return dict(enumerate([shifted] if is_one else shifted))


def shifted_pairs(shifted: Shifted) -> list[tuple[Any, Any]]:
    """Return the logits and labels of each shifted data set."""
    sets = _named_sets(shifted).values()
    return [(one.logits, one.labels) if isinstance(one, Outputs) else one[:2] for one in sets]


def fit_shift(
    dac: DAC, layers: Sequence[str], clean: Samples, scores: Any, shifted: ShiftedData, plain_temperature: float
) -> tuple[dict[str, Any], Any]:
    """Fit the slopes on clean and shifted data, and the intercept mostly on clean data, with the options of a DAC.

    Return the attributes that DAC learns and the temperatures of the clean samples. If the fit is rejected, these are
    the cost on clean data and None.
    """
    limit, logits, labels = check_clean_cost(dac.max_clean_cost), clean.logits, clean.labels
    visible, shifted_visible = (fill_masked(one, mask_gap(plain_temperature))[0] for one in (logits, shifted.logits))
    excess = Excess.learn(visible, scores)
    near = to_numpy(excess(visible, scores)).astype(np.float64)
    far = to_numpy(excess(shifted_visible, shifted.scores)).astype(np.float64)
    shifted_loss = TemperedLoss(shifted.logits, shifted.labels, "nll")
    found = fit_slopes(TemperedLoss(logits, labels, "nll"), near, shifted_loss, far)
    weights, level = np.array(found.point[:-1]), float(found.point[-1])
    rise = near @ weights
    rescaled = TemperedLoss(logits / asarray_like(np.exp(rise + level), logits)[:, None], labels, dac.loss)
    # The intercept moves CLEAN_LEVEL of the way to its optimum for clean data alone.
    level += CLEAN_LEVEL * float(np.log(solve_temperature(rescaled, warn=False)))
    temperatures = np.exp(level + rise)
    cost = measure_clean_cost(logits, labels, temperatures)
    if limit is not None and not (labels_match(shifted) and accepts_cost(cost, limit)):
        return {"clean_cost_": cost}, None
    if len(weights) and not weights.any():
        warn_user(
            "The shift fit does not use the distances: all layer weights are zero, so all inputs are rescaled alike. "
            "Use more shifted data, or data under more kinds of shift and under stronger ones."
        )
    learned = {
        "weights_": weights,
        "bias_": float(np.exp(level)),
        "layer_importance_": layer_shares(layers, weights * far.mean(axis=0)),
        "loss_": TemperedLoss(logits, labels, dac.loss).mean(temperatures),
        "n_iterations_": found.iterations,
        "converged_": found.converged,
        "clean_cost_": cost,
        "excess_knots_": excess.knots,
        "excess_coefficients_": excess.coefficients,
        "excess_spread_": excess.spread,
    }
    return learned, temperatures


def fit_slopes(clean: TemperedLoss, clean_excess: Any, shifted: TemperedLoss, shifted_excess: Any) -> Descent:
    """Minimise the NLL, averaged over clean and shifted data, plus the penalty on w, over (w_1 ... w_L, b), w >= 0."""
    parts = [
        (clean, _with_ones(clean_excess), CLEAN_SHARE / clean.samples),
        (shifted, _with_ones(shifted_excess), (1 - CLEAN_SHARE) / shifted.samples),
    ]

    layers = parts[0][1].shape[1] - 1
    prices = np.append(LAYER_PRICE / clean.samples * np.arange(layers)[::-1] / max(1, layers - 1), 0.0)

    def derivatives(point: Any) -> tuple[float, Any, Any]:
        value, gradient, hessian = float(prices @ point), prices.copy(), np.zeros((len(point), len(point)))
        for tempered, design, weight in parts:
            inverse = np.exp(-(design @ point))
            loss, slope, curvature = tempered.with_curvature(inverse)
            # With h = log S and u = exp(-h): dL/dh = -u dL/du and d2L/dh2 = u^2 d2L/du2 + u dL/du.
            by_h, by_hh = -inverse * slope, inverse**2 * curvature + inverse * slope
            value += weight * float(loss.sum())
            gradient += weight * (design.T @ by_h)
            hessian += weight * (design.T * by_hh) @ design
        return value, gradient, hessian

    start = np.append(np.full(layers, 0.05), np.log(solve_temperature(clean, warn=False)))
    return bounded_newton(derivatives, start, np.append(np.zeros(layers), -np.inf))


def _with_ones(excess: Any) -> Any:
    return np.column_stack([excess, np.ones(len(excess))])
