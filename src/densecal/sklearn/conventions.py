"""The conventions of scikit-learn for a meta-estimator: parameters, labels and metadata routing."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.frozen import FrozenEstimator
from sklearn.svm import LinearSVC
from sklearn.utils import _safe_indexing, get_tags
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping, _routing_enabled, process_routing
from sklearn.utils.validation import _num_samples, has_fit_parameter

from densecal.calibrators.base import Calibrator
from densecal.errors import warn_user
from densecal.io.tables import is_missing
from densecal.sklearn.responses import is_fitted, response

ENOUGH_AGREEMENT = 0.995
"""Ties and rounding can change a few predictions of a classifier that predicts its most probable class."""
COMPARED_SAMPLES = 1000
SKLEARN_NAMES = {"sigmoid": "platt", "isotonic": "ir", "temperature": "ts"}


class Conventions:
    """Metadata routing, tags, parameters, clones, and scikit-learn's names of fitted attributes."""

    estimator: Any
    cv: Any
    features: Any

    @property
    def estimator_(self) -> Any:
        """The only fitted classifier."""
        return self._only("estimators_")

    @property
    def calibrator_(self) -> Calibrator:
        """The only fitted calibrator."""
        return self._only("calibrators_")  # type: ignore[no-any-return]

    def _only(self, name: str) -> Any:
        found = self.__dict__.get(name, ())
        if len(found) != 1:
            raise AttributeError(f"There are {len(found)}, one per fold: see {name}, or use ensemble=False.")
        return found[0]

    def estimator_to_fit(self) -> Any:
        """Return the estimator, or scikit-learn's default for calibration if there is none."""
        if self.estimator is not None:
            return self.estimator
        default = LinearSVC(random_state=0)
        return default.set_fit_request(sample_weight=True) if _routing_enabled() else default

    def get_metadata_routing(self) -> MetadataRouter:
        """Return which arguments of ``fit`` go to this object, the estimator and the splitter."""
        to_fit = MethodMapping().add(caller="fit", callee="fit")
        to_split = MethodMapping().add(caller="fit", callee="split")
        router = MetadataRouter(owner=self).add_self_request(self)
        router.add(estimator=self.estimator_to_fit(), method_mapping=to_fit)
        return router.add(splitter=self.cv, method_mapping=to_split)

    def route(self, weights: Any, fit_params: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the arguments of the estimator's ``fit`` and of the splitter's ``split``."""
        given = dict(fit_params) if weights is None else {**fit_params, "sample_weight": weights}
        if _routing_enabled():
            routed = process_routing(self, "fit", **given)
            return dict(routed.estimator.fit), dict(routed.splitter.split)
        estimator = self.estimator_to_fit()
        if weights is not None and not has_fit_parameter(estimator, "sample_weight"):
            del given["sample_weight"]
            warn_user(
                f"{type(estimator).__name__}.fit takes no sample_weight, so only the calibrator uses the weights. "
                "Those of a pipeline's step are passed as fit(X, y, STEP__sample_weight=...)."
            )
        return given, {}

    def set_params(self, **params: object) -> Self:
        """Set parameters, except those of a fitted estimator, which is not refitted."""
        inner = [name for name in params if name.startswith("estimator__")]
        if inner and not params.keys() & {"estimator", "cv"} and self._uses_fitted_estimator():
            raise ValueError(
                f"{inner[0]} has no effect: the estimator is fitted and is not refitted. Pass an unfitted "
                "estimator, or cv=5 to refit it by cross-validation."
            )
        return super().set_params(**params)  # type: ignore[misc, no-any-return]

    def __sklearn_clone__(self) -> Self:
        # Fitted estimators are frozen before cloning, since a plain clone is unfitted.
        frozen = copy.copy(self)
        if self._uses_fitted_estimator():
            frozen.estimator = FrozenEstimator(self.estimator)
        if hasattr(self.features, "transform") and is_fitted(self.features):
            frozen.features = FrozenEstimator(self.features)
        return BaseEstimator.__sklearn_clone__(frozen)  # type: ignore[no-any-return]

    def _uses_fitted_estimator(self) -> bool:
        return isinstance(self.estimator, FrozenEstimator) or (self.cv is None and is_fitted(self.estimator))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        inner = get_tags(self.estimator_to_fit()).input_tags
        tags.input_tags.sparse, tags.input_tags.allow_nan = inner.sparse, inner.allow_nan
        return tags


def method_name(method: str, n_classes: int) -> str:
    """Return densecal's name of a method: scikit-learn has other names, and ``auto`` depends on the classes."""
    if method == "auto":
        return "beta" if n_classes == 2 else "dir"
    return SKLEARN_NAMES.get(method, method)


def check_complete(y: Any) -> None:
    """Raise if a label is missing: NaN, None or the NA of pandas."""
    missing = np.flatnonzero(is_missing(y)) if y is not None else np.zeros(0)
    if missing.size:
        raise ValueError(f"y has no label in row {missing[0]}, counted from 0. Remove such rows ({missing.size}).")


def label_indices(y: Any, classes: Any, name: str = "y") -> Any:
    """Return the position of each label among the classes. Errors call the labels by ``name``."""
    y = np.asarray(y)
    if y.ndim == 2 and y.shape[1] == 1:
        y = y[:, 0]
    if y.ndim != 1:
        raise ValueError(f"{name} must have shape (n_samples,), one class per sample, got {y.shape}.")
    positions = {label: position for position, label in enumerate(classes.tolist())}
    unknown = sorted({label for label in y.tolist() if label not in positions}, key=str)
    if unknown:
        raise ValueError(f"{name} holds the classes {unknown}, but the estimator was fitted on {list(positions)}.")
    return np.array([positions[label] for label in y.tolist()], dtype=np.int64)


def calibration_weights(calibrator: Calibrator, weights: Any, estimator: Any, is_fitted: bool) -> Any:
    """Return the weights, or None with a warning if only the estimator takes them."""
    is_unused = is_fitted or not has_fit_parameter(estimator, "sample_weight")
    if is_unused or all(stage.weighted for stage in calibrator.stages):
        return weights  # a calibrator that takes none raises an error
    warn_user(
        f"{calibrator.short_name!r} takes no sample_weight, so only the estimator uses the weights. 'beta', 'platt' "
        "and 'dir' take them."
    )
    return None


def warn_if_predictions_differ(estimator: Any, X: Any, classes: Any) -> None:
    """Warn if the estimator does not predict its most probable class, since the predictions then change."""
    if not hasattr(estimator, "predict"):
        return
    some = _safe_indexing(X, np.arange(min(_num_samples(X), COMPARED_SAMPLES)))
    values, _ = response(estimator, some)
    agree = float(np.mean(classes[values.argmax(axis=1)] == np.ravel(estimator.predict(some))))
    if agree < ENOUGH_AGREEMENT:
        warn_user(
            f"{type(estimator).__name__} predicts its most probable class for only {agree:.1%} of the samples; it may "
            "use a threshold or votes. The calibrated classifier predicts the most probable class, so its predictions "
            "differ."
        )
