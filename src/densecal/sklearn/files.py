"""The file of a calibrated classifier, which holds the calibration alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from densecal.calibrators.base import Calibrator
from densecal.calibrators.state import from_artefact_of_several
from densecal.errors import ArtefactError
from densecal.io import artefacts
from densecal.sklearn.responses import is_fitted

_NEEDED = {"classes", "probability_floor", "features", "estimator", "n_estimators"}


def describe_estimators(estimators: Sequence[Any], features: Any, probability_floor: float | None) -> dict[str, Any]:
    """Return what the file must say about the classifiers, which are not in it."""
    return {
        "classes": np.asarray(estimators[0].classes_).tolist(),
        "probability_floor": probability_floor,
        "features": features if isinstance(features, str) else None,
        "estimator": type(estimators[0]).__name__,
        "n_estimators": len(estimators),
    }


def read_calibration(path: str | Path, estimators: Sequence[Any]) -> tuple[list[Calibrator], Mapping[str, Any]]:
    """Return the calibrators and what ``CalibratedClassifier.save`` wrote beside it; raise if the estimators differ."""
    artefact = artefacts.read(path)
    joined = artefact.metadata.get("sklearn")
    if not isinstance(joined, Mapping) or not joined.keys() >= _NEEDED:
        raise ArtefactError(f"{path} was not written by CalibratedClassifier.save. densecal.load reads it.")
    if len(estimators) != joined["n_estimators"]:
        raise ValueError(
            f"{path} belongs to {joined['n_estimators']} fitted classifiers, one per fold, got {len(estimators)}. Pass "
            "the list estimators_ of the object that was saved, or save one that was made with ensemble=False."
        )
    for estimator in estimators:
        if not is_fitted(estimator):
            raise ValueError("estimator must be fitted: the file holds the calibration alone.")
        if type(estimator).__name__ != joined["estimator"]:
            raise ValueError(f"{path} belongs to a {joined['estimator']}, got a {type(estimator).__name__}.")
        if np.asarray(estimator.classes_).tolist() != joined["classes"]:
            raise ValueError(
                f"{path} belongs to a classifier of the classes {joined['classes']}, got {list(estimator.classes_)}."
            )
    return from_artefact_of_several(path, artefact), joined
