"""The file of a calibrated classifier, which contains only the calibration."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from densecal.calibrators.base import Calibrator
from densecal.calibrators.state import from_artefact_of_several
from densecal.errors import ArtefactError, warn_user
from densecal.io import artefacts
from densecal.io.atomic_files import quoted
from densecal.sklearn.responses import is_fitted, last_step, response, unwrapped

_NEEDED = {"classes", "probability_floor", "features", "estimator", "feature_names", "n_estimators", "fingerprints"}
_SCALES = 10.0 ** np.arange(-2, 6)
"""The scale of the values in each made-up row, because that of the training data is unknown."""
_TOLERANCE = 1e-4
_LOG_OF_ZERO = -1e3


def describe_estimators(estimators: Sequence[Any], features: Any, probability_floor: float | None) -> dict[str, Any]:
    """Return the metadata about the classifiers, which are not in the file."""
    return {
        "classes": np.asarray(estimators[0].classes_).tolist(),
        "probability_floor": probability_floor,
        "percentages": None if probability_floor is None else False,
        "features": features if isinstance(features, str) else None,
        "estimator": _structure(estimators[0]),
        "feature_names": _columns(estimators[0]),
        "n_estimators": len(estimators),
        "fingerprints": [_fingerprint(estimator) for estimator in estimators],
    }


def _structure(estimator: Any) -> str:
    """Return the type of an estimator with those of its steps, such as ``Pipeline(StandardScaler, SVC)``."""
    inner, parts = unwrapped(estimator), []
    for value in inner.get_params(deep=False).values() if hasattr(inner, "get_params") else ():
        steps = [one[1] for one in value if isinstance(one, tuple)] if isinstance(value, list) else [value]
        parts += [_structure(step) for step in steps if hasattr(step, "fit")]
    return f"{type(inner).__name__}({', '.join(parts)})" if parts else type(inner).__name__


def _columns(estimator: Any) -> list[str] | None:
    """Return the names of the columns that an estimator was fitted on, or None."""
    return [*map(str, getattr(unwrapped(estimator), "feature_names_in_", ()))] or None


def _fingerprint(estimator: Any) -> list[float] | None:
    """Return a number for each of a few made-up rows, so that no data are saved; None if the estimator rejects them.

    A pipeline that takes texts, categories or named columns is represented by its last step.
    """
    for part in (estimator, last_step(estimator, None)[0]):
        # NumPy guarantees that the stream of the legacy generator never changes.
        generator = np.random.RandomState(0)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                rows = generator.normal(size=(len(_SCALES), part.n_features_in_)) * _SCALES[:, None]
                # Probabilities of rows far from all data are often 0 or 1, for every estimator alike.
                has_logs = hasattr(part, "predict_log_proba")
                values = np.asarray(part.predict_log_proba(rows) if has_logs else response(part, rows)[0])
        except Exception:
            continue  # Every estimator raises its own errors.
        finite = np.nan_to_num(values, neginf=_LOG_OF_ZERO)
        weighted = finite @ generator.uniform(-1, 1, finite.shape[1])
        return [float(f"{number:.9g}") for number in weighted]
    return None


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
    for estimator, fingerprint in zip(estimators, joined["fingerprints"], strict=True):
        if not is_fitted(estimator):
            raise ValueError("estimator must be fitted: the file holds the calibration alone.")
        if np.asarray(estimator.classes_).tolist() != joined["classes"]:
            raise ValueError(
                f"{path} belongs to a classifier of the classes {joined['classes']}, got {list(estimator.classes_)}."
            )
        if check_classifier:
            _check_estimator(path, joined, estimator, fingerprint)
    return from_artefact_of_several(path, artefact), joined


def _check_estimator(path: str | Path, saved: Mapping[str, Any], estimator: Any, expected: list[float] | None) -> None:
    """Raise if the types, columns or outputs for made-up rows are not those saved; warn if there are no outputs."""
    kind, columns = _structure(estimator), _columns(estimator)
    if kind != saved["estimator"]:
        raise ArtefactError(f"{path} belongs to a {saved['estimator']}, got a {kind}.")
    if columns and saved["feature_names"] and columns != saved["feature_names"]:
        names = quoted(saved["feature_names"])
        raise ArtefactError(
            f"{path} belongs to a {kind} fitted on the columns {names}, got one fitted on {quoted(columns)}."
        )
    found = _fingerprint(estimator)
    if expected is None:
        warn_user(
            f"{path}: only the type of the {kind} was compared with the saved one, because it takes no rows of "
            "numbers. Make sure that it is the estimator that was saved, and not one fitted on other data."
        )
    elif found is None or not np.allclose(found, expected, _TOLERANCE, _TOLERANCE):
        raise ArtefactError(
            f"{path} does not belong to this {kind}: its outputs differ from those of the one that was saved. Pass "
            "estimators_ of the object that was saved, in its order, or check_classifier=False."
        )
