"""Validation of the inputs of public functions. Errors state what was expected, what was found and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any, get_args

import numpy as np

from densecal.arrays import (
    SMALLEST_PROBABILITY,
    Array,
    as_array,
    is_torch,
    namespace,
    normalise,
    to_device_of,
    to_numpy,
)
from densecal.errors import NoSamplesError

ROW_SUM_TOLERANCE = 1e-3
RANGE_TOLERANCE = 1e-6
FEW_ROWS, FEW_ROWS_TOLERANCE = 8, 1e-5
"""With fewer rows, sums near one may be a coincidence, so only sums within the tolerance count."""
ROUGH_SUM_TOLERANCE = 1e-2
"""Tolerance of the row sums of many probabilities, which may have been stored in bfloat16."""
DECIMALS = {1: range(1, 6), 100: range(4)}
"""The numbers of decimals to which probabilities and percentages may be rounded, as far as float32 shows."""


def check_logits(logits: object, name: str = "logits") -> Array:
    """Return logits as a finite float array of shape (n_samples, n_classes). Probabilities are rejected."""
    return reject_probabilities(check_scores(logits, name), name)


def reject_probabilities(array: Array, name: str = "logits") -> Array:
    """Return logits; raise if they look like probabilities or percentages."""
    found = _find_probabilities(array)
    # A single sample with scores 0 and 1 may be logits by chance.
    if found is None or (array.shape[0] == 1 and bool(namespace(array).all((array == 0) | (array == 1)))):
        return array
    total, decimals = found
    noun, share = ("percentages", "percentages / 100") if total == 100 else ("probabilities", "probabilities")
    rounded = "" if decimals is None else "rounded "
    # A probability that is rounded to 0 is at most half a unit.
    floor = SMALLEST_PROBABILITY if decimals is None else 10.0**-decimals / total / 2
    raise ValueError(
        f"{name} look like {rounded}{noun}: every value lies in [0, {total}], and every row sums to {total}. Pass the "
        f"scores before the softmax or, if you have only these, numpy.log(numpy.clip({share}, {floor:g}, None)) (on "
        "the command line: --probabilities). If they are logits, say so with Outputs(..., assume_logits=True) or "
        "--assume-logits."
    )


def check_scores(scores: object, name: str = "logits") -> Array:
    """Return scores as a finite float array with at least one sample and two classes."""
    array = check_finite_floats(as_array(scores, name), name)
    check_scores_shape(array, name)
    return array


def check_scores_shape(array: Array, name: str = "logits") -> None:
    """Raise unless the shape is (n_samples, n_classes) with at least one sample and two classes."""
    if array.ndim != 2 or array.shape[1] < 2:
        raise ValueError(
            f"{name} must have shape (n_samples, n_classes) with at least 2 classes, got {tuple(array.shape)}."
        )
    if array.shape[0] == 0:
        raise NoSamplesError(f"{name} must have at least 1 sample, got shape {tuple(array.shape)}.")


def check_finite_floats(array: Array, name: str) -> Array:
    """Return the array as finite floats. Integers and half precision are converted to a wider type."""
    array = as_floats(check_numbers(array, name))
    check_finite(array, name)
    return array


def as_floats(array: Array) -> Array:
    """Return numbers as floats of at least 32 bits."""
    if is_torch(array):
        return array if array.dtype.itemsize >= 4 and array.is_floating_point() else array.float()
    is_wide = array.dtype.kind == "f" and array.dtype.itemsize >= 4
    return array if is_wide else array.astype(np.float32 if array.dtype == np.float16 else np.float64)


def check_numbers(array: Array, name: str) -> Array:
    """Return an array of numbers; raise for booleans, complex numbers, text and objects.

    Tensors of types that NumPy lacks, bfloat16 and float8, are converted to float32.
    """
    if not namespace(array).isdtype(array.dtype, ("real floating", "integral")):
        raise TypeError(f"{name} must be numbers, got dtype {array.dtype}. Convert it first, if that is meant.")
    if is_torch(array) and (str(array.dtype) == "torch.bfloat16" or array.dtype.itemsize == 1):
        return array.float()
    return array


def check_finite(array: Array, name: str) -> None:
    """Raise if any value is NaN or infinite, without copying the array."""
    xp = namespace(array)
    # A finite sum implies finite terms and needs no boolean array. A sum can overflow, so check the terms then.
    wide = {"dtype": np.float32} if not is_torch(array) and array.dtype == np.float16 else {}
    with np.errstate(over="ignore", invalid="ignore"):
        if bool(xp.isfinite(xp.sum(array, **wide))):
            return
    finite = xp.isfinite(array)
    bad = int(xp.sum(xp.astype(~finite, xp.int64)))
    if bad:
        rows = to_numpy(~finite).reshape(array.shape[0], -1).any(axis=1).nonzero()[0]
        raise ValueError(
            f"{name} must be finite: {bad} values are NaN or infinite, first in row {int(rows[0])}, counted from 0. "
            "Check the inputs for such values, and the classifier for an overflow in half precision or a division by "
            "zero."
        )


def _find_probabilities(array: Array) -> tuple[int, int | None] | None:
    """Return the total and the decimals (None: not rounded) of probabilities or percentages, or None for logits.

    The rows of probabilities sum to 1 or 100, those of logits do not. Rounding to a unit changes the sum of C values by
    up to C/2 units, so the sums of rounded values may be off by that much, but at most by a quarter.
    """
    if array.shape[0] < FEW_ROWS:
        return (1, None) if _lies_within(array, 1) and _sums_to(array, 1, FEW_ROWS_TOLERANCE) else None
    for total in (1, 100):
        in_range = _lies_within(array, total)
        if in_range and (_sums_to(array, total, ROUGH_SUM_TOLERANCE * total) or _rounded_to(array, total)):
            return total, _decimals(array, total)
    return None


def rounding_slack(array: Array, total: int) -> float:
    """Return by how much rounding may have changed the row sums of probabilities or percentages; 0 if not rounded."""
    decimals = _decimals(array, total)
    return 0.0 if decimals is None else min(array.shape[1] * 10.0**-decimals / 2, total / 4) + RANGE_TOLERANCE * total


def _rounded_to(array: Array, total: int) -> bool:
    """Return whether the rows sum to the total, up to rounding."""
    xp = namespace(array)
    sums, slack = xp.sum(array, axis=1), rounding_slack(array, total)
    # A row of many small values may have lost them all, so the lower bound holds for the mean.
    return bool(float(xp.max(sums)) <= total + slack and float(xp.mean(sums)) >= total - slack)


def _lies_within(array: Array, total: int) -> bool:
    xp = namespace(array)
    # A weighted mean of probabilities may round to just above 1.
    low, high = -RANGE_TOLERANCE * total, (1 + RANGE_TOLERANCE) * total
    # For logits, the first row usually rules probabilities out.
    return all(float(xp.min(part)) >= low and float(xp.max(part)) <= high for part in (array[:1, ...], array))


def _sums_to(array: Array, total: int, tolerance: float) -> bool:
    xp = namespace(array)
    return bool(xp.max(xp.abs(xp.sum(array, axis=1) - total)) <= tolerance)


def _decimals(array: Array, total: int) -> int | None:
    """Return the smallest number of decimals to which all values are rounded, up to float32's errors, or None."""
    xp = namespace(array)
    for decimals in DECIMALS[total]:
        scaled = array * 10.0**decimals
        if bool(xp.max(xp.abs(scaled - xp.round(scaled))) < 1e-6 * total * 10**decimals):
            return decimals
    return None


def check_labels(labels: object, n_samples: int, n_classes: int, like: Array | None = None) -> Array:
    """Return integer labels of shape (n_samples,). Booleans, integer-valued floats and one-hot rows are accepted."""
    array = as_array(labels, "labels")
    xp = namespace(array)
    if n_samples == 0:
        raise ValueError("labels must have at least 1 sample, got none.")
    if array.ndim == 2 and tuple(array.shape) == (n_samples, n_classes):
        array = _from_one_hot(array)
    if array.ndim != 1 or array.shape[0] != n_samples:
        raise ValueError(
            f"labels must have shape ({n_samples},), one integer per sample, or one-hot ({n_samples}, {n_classes}); "
            f"got {tuple(array.shape)}."
        )
    array = _whole_numbers(array, n_classes)
    low, high = int(xp.min(array)), int(xp.max(array))
    if low < 0 or high >= n_classes:
        raise ValueError(
            f"labels must lie in 0 ... {n_classes - 1} for {n_classes} classes, got values from {low} to {high}. If "
            "they start at 1, pass labels - 1. If a negative label marks a sample without a class, remove those rows."
        )
    return to_device_of(array, like)


def _whole_numbers(array: Array, n_classes: int) -> Array:
    """Return booleans and integer-valued floats as integers; reject anything else."""
    if array.dtype == object and all(isinstance(one, Real) for one in array):
        array = array.astype(np.float64)
    wanted = f"labels must be integers 0 ... {n_classes - 1}"
    if array.dtype == object:
        import pandas as pd

        if (missing := pd.isna(array)).any():
            raise TypeError(f"{wanted}, got none in row {missing.argmax()}, counted from 0.")
    xp = namespace(array)
    if xp.isdtype(array.dtype, "real floating"):
        whole = xp.isfinite(array) & (array == xp.floor(array))
        if not bool(xp.all(whole)):
            row = int(to_numpy(~whole).nonzero()[0][0])
            raise TypeError(f"{wanted}, got {float(array[row]):g} in row {row}, counted from 0.")
    elif not xp.isdtype(array.dtype, ("integral", "bool")):
        raise TypeError(
            f"{wanted}, got dtype {array.dtype}. Encode class names in the order of the columns of the logits, for "
            "sorted names with: names, labels = numpy.unique(labels, return_inverse=True)."
        )
    return xp.astype(array, xp.int64)


def _from_one_hot(array: Array) -> Array:
    xp = namespace(array)
    numbers = xp.astype(array, xp.float32)
    if bool(xp.any((numbers != 0) & (numbers != 1))) or bool(xp.any(xp.sum(numbers, axis=1) != 1)):
        raise ValueError("labels of shape (n_samples, n_classes) must be one-hot: one 1 per row, all others 0.")
    return xp.argmax(numbers, axis=1)


def check_probabilities(probabilities: object, name: str = "probabilities") -> Array:
    """Return probabilities as a float array of shape (n_samples, n_classes) whose rows sum to one."""
    array = check_scores(probabilities, name)
    if not (_lies_within(array, 1) and _sums_to(array, 1, ROW_SUM_TOLERANCE)):
        raise ValueError(
            f"{name} must lie in [0, 1] and sum to 1 in every row. Convert logits with a calibrator's "
            "predict_proba or with a softmax."
        )
    return array


def check_distances(distances: object, n_samples: int | None) -> Array:
    """Return distances as a finite, non-negative array of shape (n_samples, n_layers), with at least one sample."""
    array = check_finite_floats(as_array(distances, "distances"), "distances")
    if array.ndim != 2 or array.shape[0] == 0 or n_samples not in (None, array.shape[0]):
        rows = n_samples or "n_samples > 0"
        raise ValueError(f"distances must have shape ({rows}, n_layers), got {tuple(array.shape)}.")
    if array.shape[1] and float(namespace(array).min(array)) < 0:
        raise ValueError("distances must not be negative. Compute them with FeatureBank.distances(features).")
    return array


def check_features(features: object) -> dict[str, Array]:
    """Return features as a mapping from layer names to arrays of shape (n_samples, width) with equal n_samples."""
    if not isinstance(features, Mapping):
        raise TypeError(
            f"features must map layer names to arrays of shape (n_samples, width), got {type(features).__name__}. "
            'For a single layer, pass {"penultimate": array}.'
        )
    checked: dict[str, Array] = {}
    for layer, values in features.items():
        array = as_array(values, f"features[{layer!r}]")
        if array.ndim != 2 or array.shape[1] == 0:
            raise ValueError(
                f"features[{layer!r}] must have shape (n_samples, width), got {tuple(array.shape)}. Average feature "
                "maps over their positions and token sequences over their tokens first."
            )
        checked[str(layer)] = array
    sizes = {layer: array.shape[0] for layer, array in checked.items()}
    if len(set(sizes.values())) > 1:
        raise ValueError(f"features must have the same number of samples in every layer, got {sizes}.")
    return checked


def count_samples(features: Mapping[str, Array]) -> int:
    """Return the number of samples of checked features; raise if there are no layers."""
    if not features:
        raise ValueError("features must have at least one layer, got none.")
    return int(next(iter(features.values())).shape[0])


def unit_rows(features: Array, layer: str) -> Array:
    """Return finite features of a layer, each divided by its Euclidean norm."""
    return normalise(check_finite_floats(features, f"features[{layer!r}]"))


def check_weights(weights: object, n_samples: int) -> Array:
    """Return the weights of samples in float64; if the mean of the positive ones is below one, scaled to a mean of one.

    As in scikit-learn, a weight of two counts as the sample given twice, so whole numbers are not scaled. Weights that
    sum to one, however, would count less than the prior of ``platt``, which stands for two samples.
    """
    checked = np.asarray(to_numpy(as_array(weights)), dtype=np.float64)
    if checked.shape != (n_samples,):
        raise ValueError(f"sample_weight must have shape ({n_samples},), one weight per sample, got {checked.shape}.")
    if not np.isfinite(checked).all() or checked.min() < 0 or not checked.sum() > 0:
        raise ValueError("sample_weight must be finite and not negative, and at least one must be positive.")
    return checked / min(1.0, float(checked[checked > 0].mean()))


def check_choice(name: str, value: object, choices: Any) -> None:
    """Raise unless the value is one of the choices of a Literal type."""
    if value not in get_args(choices):
        raise ValueError(f"{name} must be one of {', '.join(map(repr, get_args(choices)))}, got {value!r}.")
