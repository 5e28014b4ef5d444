"""The file of a calibrated classifier, which contains only the calibration."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from densecal.calibrators.base import Calibrator
from densecal.calibrators.state import from_artefact_of_several
from densecal.errors import ArtefactError
from densecal.io import artefacts
from densecal.sklearn.responses import is_fitted, response, unwrapped

_NEEDED = {"classes", "probability_floor", "features", "estimator", "n_estimators", "fingerprints"}
_SCALES = 10.0 ** np.arange(-2, 6)
"""The scale of the values in each made-up row, because that of the training data is unknown."""
_TOLERANCE = 1e-4


def describe_estimators(estimators: Sequence[Any], features: Any, probability_floor: float | None) -> dict[str, Any]:
    """Return the metadata about the classifiers, which are not in the file."""
    return {
        "classes": np.asarray(estimators[0].classes_).tolist(),
        "probability_floor": probability_floor,
        "percentages": None if probability_floor is None else False,
        "features": features if isinstance(features, str) else None,
        "estimator": type(unwrapped(estimators[0])).__name__,
        "n_estimators": len(estimators),
        "fingerprints": [_fingerprint(estimator) for estimator in estimators],
    }


def _fingerprint(estimator: Any) -> list[float] | None:
    """Return a number for each of a few made-up rows, so that no data are saved; None if the estimator rejects them."""
    # NumPy guarantees that the stream of the legacy generator never changes.
    generator = np.random.RandomState(0)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            rows = generator.normal(size=(len(_SCALES), estimator.n_features_in_)) * _SCALES[:, None]
            values, _ = response(estimator, rows, len(estimator.classes_))
    except Exception:
        return None  # It takes texts, categories or named columns, and every estimator raises its own errors.
    weighted = np.nan_to_num(values) @ generator.uniform(-1, 1, values.shape[1])
    return [float(f"{number:.9g}") for number in weighted]


def read_calibration(
    path: str | Path, estimators: Sequence[Any], *, check_classifier: bool
) -> tuple[list[Calibrator], Mapping[str, Any]]:
    """Return the calibrators and the metadata of the file; raise if the estimators differ from the saved ones."""
    artefact = artefacts.read(path)
    joined = artefact.metadata.get("sklearn")
    if not isinstance(joined, Mapping) or not joined.keys() >= _NEEDED:
        raise ArtefactError(f"{path} was not written by CalibratedClassifier.save. densecal.load reads it.")
    if len(estimators) != joined["n_estimators"]:
        raise ValueError(
            f"{path} belongs to {joined['n_estimators']} fitted classifiers, one per fold, got {len(estimators)}. Pass "
            "the list estimators_ of the object that was saved, or save one that was made with ensemble=False."
        )
    for estimator, expected in zip(estimators, joined["fingerprints"], strict=True):
        if not is_fitted(estimator):
            raise ValueError("estimator must be fitted: the file holds the calibration alone.")
        kind = type(unwrapped(estimator)).__name__
        if check_classifier and kind != joined["estimator"]:
            raise ArtefactError(f"{path} belongs to a {joined['estimator']}, got a {kind}.")
        if np.asarray(estimator.classes_).tolist() != joined["classes"]:
            raise ValueError(
                f"{path} belongs to a classifier of the classes {joined['classes']}, got {list(estimator.classes_)}."
            )
        found = _fingerprint(estimator) if check_classifier else expected
        if expected is not None and (found is None or not np.allclose(found, expected, _TOLERANCE, _TOLERANCE)):
            raise ArtefactError(
                f"{path} does not belong to this {joined['estimator']}: its outputs differ from those of the one that "
                "was saved. Pass estimators_ of the object that was saved, in its order, or check_classifier=False."
            )
    return from_artefact_of_several(path, artefact), joined
