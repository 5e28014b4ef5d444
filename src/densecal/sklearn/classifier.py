"""CalibratedClassifier: calibrate a scikit-learn classifier, fitted or not."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, TransformerMixin
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils import get_tags, indexable
from sklearn.utils.metadata_routing import MetadataRouter, MethodMapping
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from densecal.arrays.probabilities import probability_floor, to_logits
from densecal.calibrators.base import Calibrator
from densecal.calibrators.names import has_dac
from densecal.calibrators.registry import from_artefact, make_calibrator
from densecal.calibrators.solvers.tempering import Loss
from densecal.density.bank import FeatureBank
from densecal.errors import ArtefactError
from densecal.io import artefacts
from densecal.outputs import Outputs
from densecal.sklearn.features import Features
from densecal.sklearn.held_out import Density, HeldOut, cross_validate
from densecal.sklearn.inputs import calibration_weights, label_indices, route, warn_if_predictions_differ
from densecal.sklearn.scores import is_fitted, response

DEFAULT_FOLDS = 5
SKLEARN_NAMES = {"sigmoid": "platt", "isotonic": "ir", "temperature": "ts"}


class CalibratedClassifier(ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Calibrate a scikit-learn classifier with one of densecal's methods.

    Parameters
    ----------
    estimator : classifier
        An unfitted classifier is cloned and fitted by cross-validation. The calibrator learns from the outputs on the
        held-out folds, and a last clone is fitted on all samples. A fitted one, or a ``FrozenEstimator``, is used as
        it is: pass ``fit`` samples that it was not fitted on. Your object is never changed.
    method : str, default "auto"
        The short name of a calibrator, or several joined by +. ``"auto"`` is ``beta`` for two classes and ``dir`` for
        more. With ``dac`` the confidence also depends on the distance of the sample from the training data.
        scikit-learn's ``sigmoid``, ``isotonic`` and ``temperature`` are ``platt``, ``ir`` and ``ts``.
    cv : int, cross-validation splitter or iterable of splits, optional
        By default 5 stratified folds, and none for a fitted estimator. With ``cv``, that is fitted again too.
    features : callable, str or transformer, optional
        For ``dac``, where distances are measured: the name of a step of the estimator's pipeline, such as the one that
        scales and encodes the columns; a transformer; or a function that maps X to a mapping from layer names to arrays
        of shape (n_samples, width). By default, the hidden layers and, for more than two classes, the output of an
        ``MLPClassifier``, which may be inside a ``Pipeline``, a search or a ``FrozenEstimator``.
    k : int or "auto"
        For ``dac``: measure to the k-th nearest neighbour. ``"auto"`` chooses k, and centres for the shift fit.
    loss : {"nll", "brier"}, optional
        The loss of ``ts``, ``ets`` and ``dac``, which can minimise either.
    n_jobs : int, optional
        The number of folds to fit at the same time.

    Attributes
    ----------
    estimator_ : classifier
        The fitted classifier that ``predict_proba`` asks.
    calibrator_ : Calibrator
        The fitted calibrator.
    classes_ : ndarray
        The classes.
    probability_floor_ : float or None
        What stands for predicted probabilities of zero: half the smallest positive one. None for decision functions.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> calibrated = CalibratedClassifier(RandomForestClassifier(random_state=0)).fit(X[:400], y[:400])
    >>> calibrated.predict_proba(X[400:]).shape
    (169, 2)
    """

    def __init__(
        self,
        estimator: BaseEstimator,
        method: str = "auto",
        *,
        cv: int | BaseCrossValidator | None = None,
        features: Features | str | TransformerMixin | None = None,
        k: Literal["auto"] | int = "auto",
        loss: Loss | None = None,
        n_jobs: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.method = method
        self.cv = cv
        self.features = features
        self.k = k
        self.loss = loss
        self.n_jobs = n_jobs

    def fit(
        self,
        X: object,
        y: object,
        sample_weight: object = None,
        *,
        X_train: object = None,
        X_shifted: object = None,
        y_shifted: object = None,
        **fit_params: object,
    ) -> Self:
        """Fit the calibrator, and the estimator unless it is fitted.

        Parameters
        ----------
        X, y : array-like
            The training set, or samples that a fitted estimator was not fitted on.
        sample_weight : array-like, optional
            Weights for the estimator and for the methods that take them: ``beta``, ``platt`` and ``dir``.
        X_train : array-like, optional
            For ``dac`` with a fitted estimator: the samples that it was fitted on.
        X_shifted, y_shifted : array-like, optional
            For ``dac``: labelled shifted samples. The temperature is then fitted to stay calibrated under shift.
        **fit_params
            Arguments of the estimator's ``fit``, split with X if they have one value per sample.
        """
        if (X_shifted is None) != (y_shifted is None):
            raise ValueError("X_shifted and y_shifted must be passed together.")
        X, y = indexable(X, y)
        weights = None if sample_weight is None else _check_sample_weight(sample_weight, X)
        density = self._density(shift_fit=X_shifted is not None)
        if self._uses_fitted_estimator():
            held_out, bank = self._use_fitted(X, fit_params, X_train, density)
        else:
            held_out, bank = self._cross_validate(X, y, weights, fit_params, X_train, density)
        labels = label_indices(y, self.classes_)[held_out.rows]
        self.probability_floor_ = probability_floor(held_out.values) if held_out.are_probabilities else None
        warn_if_predictions_differ(self.estimator_, X, self.classes_)
        calibrator = make_calibrator(self._method(), bank=bank, loss=self.loss)
        if weights is not None:
            weights = calibration_weights(calibrator, weights, self.estimator, self._uses_fitted_estimator())
        self.calibrator_: Calibrator = calibrator.fit(
            to_logits(held_out.values, self.probability_floor_),
            labels,
            features=self._outputs(X).features if bank is not None and held_out.distances is None else None,
            distances=held_out.distances,
            shifted=None if X_shifted is None else self._outputs(X_shifted, y_shifted),
            sample_weight=None if weights is None else weights[held_out.rows],
        )
        return self

    def predict_proba(self, X: object) -> NDArray[np.floating]:
        """Return calibrated probabilities of shape (n_samples, n_classes), columns in the order of ``classes_``."""
        check_is_fitted(self)
        return np.asarray(self.calibrator_.predict_proba(self._outputs(X)))

    def predict(self, X: object) -> NDArray[np.generic]:
        """Return the most probable class of each sample."""
        best = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[best])

    def confidence(self, X: object) -> NDArray[np.floating]:
        """Return the calibrated confidence in each prediction, of shape (n_samples,)."""
        check_is_fitted(self)
        return np.asarray(self.calibrator_.confidence(self._outputs(X)))

    def save(self, path: str | Path, *, metadata: Mapping[str, object] | None = None) -> None:
        """Write the calibration, without the estimator, to one safetensors file. Nothing is pickled."""
        check_is_fitted(self)
        joined = {
            "classes": self.classes_.tolist(),
            "probability_floor": self.probability_floor_,
            "features": self.features if isinstance(self.features, str) else None,
            "estimator": type(self.estimator_).__name__,
        }
        self.calibrator_.save(path, metadata={**(metadata or {}), "sklearn": joined})

    @classmethod
    def load(
        cls, path: str | Path, estimator: BaseEstimator, *, features: Features | TransformerMixin | None = None
    ) -> Self:
        """Join a calibration that ``save`` wrote to the fitted estimator that it was made for.

        ``estimator`` is the fitted ``estimator_`` of the object that was saved, and ``features`` its ``features_``,
        unless that was the name of a step.
        """
        artefact = artefacts.read(path)
        joined = artefact.metadata.get("sklearn")
        if not isinstance(joined, Mapping) or not {"classes", "probability_floor", "features"} <= joined.keys():
            raise ArtefactError(f"{path} was not written by CalibratedClassifier.save. densecal.load reads it.")
        if not is_fitted(estimator):
            raise ValueError("estimator must be fitted: the file holds the calibration alone.")
        if np.asarray(estimator.classes_).tolist() != joined["classes"]:
            raise ValueError(
                f"{path} belongs to a classifier of the classes {joined['classes']}, got {list(estimator.classes_)}."
            )
        calibrator = from_artefact(path, artefact)
        loaded = cls(estimator, calibrator.short_name, features=joined["features"] if features is None else features)
        loaded._join(estimator)
        loaded.features_, loaded.probability_floor_ = loaded.features, joined["probability_floor"]
        loaded.calibrator_ = calibrator
        return loaded

    def set_params(self, **params: object) -> Self:
        """Set parameters. Those of a fitted estimator cannot be set, as it is not fitted again."""
        inner = [name for name in params if name.startswith("estimator__")]
        if inner and not params.keys() & {"estimator", "cv"} and self._uses_fitted_estimator():
            raise ValueError(
                f"{inner[0]} has no effect: the estimator is fitted and is not fitted again. Pass an unfitted "
                "estimator, or cv=5 to fit it again by cross-validation."
            )
        return super().set_params(**params)  # type: ignore[no-any-return]

    def get_metadata_routing(self) -> MetadataRouter:
        """Return which arguments of ``fit`` go to this object, the estimator and the splitter."""
        to_fit = MethodMapping().add(caller="fit", callee="fit")
        to_split = MethodMapping().add(caller="fit", callee="split")
        router = MetadataRouter(owner=self).add_self_request(self).add(estimator=self.estimator, method_mapping=to_fit)
        return router.add(splitter=self.cv, method_mapping=to_split)

    def __sklearn_clone__(self) -> Self:
        # Clones of what is used as fitted are frozen, since a plain clone is unfitted.
        frozen = copy.copy(self)
        if self._uses_fitted_estimator():
            frozen.estimator = FrozenEstimator(self.estimator)
        if hasattr(self.features, "transform") and is_fitted(self.features):
            frozen.features = FrozenEstimator(self.features)
        return BaseEstimator.__sklearn_clone__(frozen)  # type: ignore[no-any-return]

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "calibrator_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = get_tags(self.estimator).input_tags.sparse
        tags.input_tags.allow_nan = get_tags(self.estimator).input_tags.allow_nan
        return tags

    def _uses_fitted_estimator(self) -> bool:
        return isinstance(self.estimator, FrozenEstimator) or (self.cv is None and is_fitted(self.estimator))

    def _method(self) -> str:
        if self.method == "auto":
            return "beta" if len(self.classes_) == 2 else "dir"
        return SKLEARN_NAMES.get(self.method, self.method)

    def _density(self, *, shift_fit: bool = False) -> Density | None:
        k = None if shift_fit and self.k == "auto" else self.k
        return Density(self.features, k) if self.method != "auto" and has_dac(self.method) else None

    def _use_fitted(
        self, X: Any, fit_params: Mapping[str, Any], X_train: Any, density: Density | None
    ) -> tuple[HeldOut, FeatureBank | None]:
        """Return the outputs of the fitted estimator, and the bank of the samples that it was fitted on."""
        if fit_params:
            raise TypeError(f"fit got {list(fit_params)}, but the estimator is fitted and is not fitted again.")
        if density is not None and X_train is None:
            raise ValueError(
                f"method {self.method!r} needs distances from the training data: pass fit(X, y, X_train=...)."
            )
        check_is_fitted(self.estimator)
        self._join(self.estimator)
        held_out = HeldOut(*response(self.estimator, X, len(self.classes_)), rows=slice(None))
        return held_out, None if density is None else self._bank(density, X_train)

    def _cross_validate(
        self, X: Any, y: Any, weights: Any, fit_params: Mapping[str, Any], X_train: Any, density: Density | None
    ) -> tuple[HeldOut, FeatureBank | None]:
        """Fit clones of the estimator; return their outputs on held-out samples, and the bank of all samples."""
        if X_train is not None:
            raise ValueError("X_train= is for a fitted estimator. With cross-validation the training samples are X.")
        to_fit, to_split = route(self, weights, fit_params)
        cv = DEFAULT_FOLDS if self.cv is None else self.cv
        estimator, held_out = cross_validate(
            self.estimator, X, y, cv=cv, to_fit=to_fit, to_split=to_split, density=density, n_jobs=self.n_jobs
        )
        self._join(estimator)
        return held_out, None if density is None else self._bank(density, X)

    def _bank(self, density: Density, X_train: Any) -> FeatureBank:
        self.features_ = density.fitted_source(X_train)
        return density.bank(self.features_, self.estimator_, X_train, len(self.classes_))

    def _join(self, estimator: Any) -> None:
        self.estimator_ = estimator
        self.classes_ = np.asarray(estimator.classes_)
        if self.classes_.ndim != 1:
            raise ValueError("estimator must predict one label per sample, got a multi-output classifier.")
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(estimator, name):
                setattr(self, name, getattr(estimator, name))

    def _outputs(self, X: Any, y: Any = None) -> Outputs:
        values, _ = response(self.estimator_, X, len(self.classes_))
        density = self._density()
        features = None if density is None else density.features(self.features_, self.estimator_, X, len(self.classes_))
        labels = None if y is None else label_indices(y, self.classes_)
        return Outputs(to_logits(values, self.probability_floor_), labels, features)
