"""Checks at the door of every public entry; each error says what was expected, what was found and what to do."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real

import numpy as np

from densecal.arrays import Array, as_array, is_torch, namespace, to_device_of, to_numpy

ROW_SUM_TOLERANCE = 1e-3
RANGE_TOLERANCE = 1e-6


def check_logits(logits: object, name: str = "logits") -> Array:
    """Return logits as a finite floating (n_samples, n_classes) array; probabilities are rejected."""
    array = check_scores(logits, name)
    if looks_like_probabilities(array) and not _is_one_row_of_zeros_and_ones(array):
        raise ValueError(
            f"{name} look like probabilities: every row lies in [0, 1] and sums to 1. Pass the scores before the "
            "softmax, or numpy.log(numpy.clip(probabilities, 1e-12, None)) if only probabilities are left."
        )
    return array


def check_scores(scores: object, name: str = "logits") -> Array:
    """Return scores as a finite floating array of at least one sample and two classes."""
    array = check_finite_floats(as_array(scores), name)
    check_scores_shape(array, name)
    return array


def check_scores_shape(array: Array, name: str = "logits") -> None:
    """Raise unless the shape is (n_samples, n_classes), with a sample and two classes at least."""
    if array.ndim != 2 or array.shape[1] < 2:
        raise ValueError(
            f"{name} must have shape (n_samples, n_classes) with at least 2 classes, got {tuple(array.shape)}."
        )
    if array.shape[0] == 0:
        raise ValueError(f"{name} hold no sample: got shape {tuple(array.shape)}.")


def _is_one_row_of_zeros_and_ones(array: Array) -> bool:
    """Whether this is a single sample whose scores are 0 and 1, which may be logits by chance."""
    xp = namespace(array)
    return array.shape[0] == 1 and bool(xp.all((array == 0) | (array == 1)))


def check_finite_floats(array: Array, name: str) -> Array:
    """Return the array as finite floats; integers and half precision are widened."""
    if is_torch(array):
        import torch

        if not array.is_floating_point() or array.dtype in (torch.float16, torch.bfloat16):
            array = array.to(torch.float32)
    elif array.dtype == np.float16:
        array = array.astype(np.float32)
    elif array.dtype.kind in "iub":
        array = array.astype(np.float64)
    elif array.dtype.kind != "f":
        raise TypeError(f"{name} must be numbers, got an array of dtype {array.dtype}.")
    check_finite(array, name)
    return array


def check_finite(array: Array, name: str) -> None:
    """Raise if any value is NaN or infinite; the array is not copied."""
    xp = namespace(array)
    # A float32 sum is finite only if every term is, and needs no array of booleans; an overflow is looked at again.
    wide = {"dtype": np.float32} if not is_torch(array) and array.dtype == np.float16 else {}
    if bool(xp.isfinite(xp.sum(array, **wide))):
        return
    finite = xp.isfinite(array)
    bad = int(xp.sum(xp.astype(~finite, xp.int64)))
    if bad:
        rows = to_numpy(~finite).reshape(array.shape[0], -1).any(axis=1).nonzero()[0]
        raise ValueError(
            f"{name} must be finite: {bad} values are NaN or infinite, first in row {int(rows[0])}. "
            "Look for an overflow in half precision or a division by zero in the classifier."
        )


def looks_like_probabilities(array: Array) -> bool:
    """Whether every row lies in [0, 1] and sums to one, which no classifier's logits do by chance."""
    xp = namespace(array)
    # A weighted mean of probabilities may round to just above 1.
    low, high = -RANGE_TOLERANCE, 1 + RANGE_TOLERANCE
    if float(xp.min(array[:1, ...])) < low or float(xp.min(array)) < low or float(xp.max(array)) > high:
        return False
    return bool(xp.max(xp.abs(xp.sum(array, axis=1) - 1)) < ROW_SUM_TOLERANCE)


def check_labels(labels: object, n_samples: int, n_classes: int, like: Array | None = None) -> Array:
    """Return integer class labels of shape (n_samples,); booleans, whole floats and one-hot rows are accepted."""
    array = as_array(labels)
    xp = namespace(array)
    if n_samples == 0:
        raise ValueError("labels hold no sample: there is nothing to learn from or to evaluate.")
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
            f"labels must lie in 0 ... {n_classes - 1} for {n_classes} classes, got values from {low} to {high}. "
            + _out_of_range_hint(low, high, n_classes)
        )
    return to_device_of(array, like)


def _whole_numbers(array: Array, n_classes: int) -> Array:
    """Return booleans and floats without a fraction as integers; reject anything else."""
    if array.dtype == object and all(isinstance(one, Real) for one in array):
        array = array.astype(np.float64)
    xp = namespace(array)
    wanted = f"labels must be integers 0 ... {n_classes - 1}"
    if xp.isdtype(array.dtype, "real floating"):
        whole = xp.isfinite(array) & (array == xp.floor(array))
        if not bool(xp.all(whole)):
            row = int(to_numpy(~whole).nonzero()[0][0])
            raise TypeError(f"{wanted}, got {float(array[row]):g} in row {row}, which is no class.")
    elif not xp.isdtype(array.dtype, ("integral", "bool")):
        raise TypeError(
            f"{wanted}, got dtype {array.dtype}. Number the classes: names, labels = numpy.unique(labels, "
            "return_inverse=True) does it, in the order of the logits' columns if that is alphabetical."
        )
    return xp.astype(array, xp.int64)


def _out_of_range_hint(low: int, high: int, n_classes: int) -> str:
    if low < 0:
        return "Where a negative label marks a sample without a class, leave those rows out."
    if low >= 1 and high == n_classes:
        return "Labels that start at 1 need labels - 1."
    return "Are the logits and the labels of the same classes?"


def _from_one_hot(array: Array) -> Array:
    xp = namespace(array)
    numbers = xp.astype(array, xp.float32)
    if bool(xp.any((numbers != 0) & (numbers != 1))) or bool(xp.any(xp.sum(numbers, axis=1) != 1)):
        raise ValueError("labels of shape (n_samples, n_classes) must be one-hot: a single 1 in each row, else 0.")
    return xp.argmax(numbers, axis=1)


def check_probabilities(probabilities: object, name: str = "probabilities") -> Array:
    """Return probabilities as a floating (n_samples, n_classes) array whose rows sum to one."""
    array = check_scores(probabilities, name)
    if not looks_like_probabilities(array):
        raise ValueError(
            f"{name} must lie in [0, 1] and sum to 1 in every row. Logits go through a calibrator's "
            "predict_proba, or a softmax, first."
        )
    return array


def check_distances(distances: object, n_samples: int) -> Array:
    """Return distances as a finite, non-negative (n_samples, n_layers) array."""
    array = check_finite_floats(as_array(distances), "distances")
    if array.ndim != 2 or array.shape[0] != n_samples:
        raise ValueError(f"distances must have shape ({n_samples}, n_layers), got {tuple(array.shape)}.")
    xp = namespace(array)
    if array.shape[1] and float(xp.min(array)) < 0:
        raise ValueError("distances must not be negative; they come from FeatureBank.distances(features).")
    return array


def check_features(features: object, name: str = "features") -> dict[str, Array]:
    """Return a mapping from layer name to (n_samples, width) features, all of the same n_samples."""
    if not isinstance(features, Mapping):
        raise TypeError(
            f"{name} must map layer names to (n_samples, width) arrays, got {type(features).__name__}. "
            'Write {"penultimate": array} for a single layer.'
        )
    checked: dict[str, Array] = {}
    for layer, values in features.items():
        array = as_array(values)
        if array.ndim != 2 or array.shape[1] == 0:
            raise ValueError(
                f"{name}[{layer!r}] must have shape (n_samples, width), got {tuple(array.shape)}. Average feature "
                "maps over space, and token sequences over tokens, first."
            )
        checked[str(layer)] = array
    sizes = {layer: array.shape[0] for layer, array in checked.items()}
    if len(set(sizes.values())) > 1:
        raise ValueError(f"{name} must have the same number of samples in every layer, got {sizes}.")
    return checked
