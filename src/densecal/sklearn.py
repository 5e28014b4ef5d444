"""CalibratedClassifier: calibrate a fitted scikit-learn classifier."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from densecal.calibrators.base import Calibrator
from densecal.calibrators.names import has_dac
from densecal.calibrators.registry import make_calibrator
from densecal.density.bank import FeatureBank
from densecal.density.defaults import choose_k
from densecal.errors import CalibrationWarning
from densecal.outputs import Outputs

ENOUGH_AGREEMENT = 0.995
"""Ties and rounding can change a few predictions of a classifier that predicts its most probable class."""
SMALLEST_PROBABILITY = 1e-12
"""Trees and nearest neighbours can predict exact zeros, whose logarithm is minus infinity."""
OUTPUT = "logits"

Features = Callable[[Any], Mapping[str, Any]]


class CalibratedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Calibrate a fitted scikit-learn classifier with one of densecal's methods.

    Parameters
    ----------
    estimator : classifier
        A fitted classifier. It is not refitted, and cloning this object keeps it fitted, so cross-validation and
        searches over ``method`` work. Do not calibrate or evaluate on the samples it was fitted on.
    method : str, default "ets"
        The short name of a calibrator, or several joined by +. With ``dac`` the confidence in each prediction depends
        on the distance of the sample from the training data, and ``fit`` requires ``X_train``.
    features : callable, optional
        For ``dac``: ``features(X)`` returns a mapping from layer names to arrays of shape (n_samples, width). By
        default, the hidden layers and, for more than two classes, the output of an ``MLPClassifier``, which may be
        inside a ``Pipeline``, a search or a ``FrozenEstimator``.
    k : int or "auto"
        For ``dac``: use the distance to the k-th nearest neighbour. ``"auto"`` chooses k from the size of the training
        set and the number of classes.

    Attributes
    ----------
    calibrator_ : Calibrator
        The fitted calibrator.
    classes_ : ndarray
        The classes of the estimator.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.naive_bayes import GaussianNB
    >>> X, y = load_digits(return_X_y=True)
    >>> classifier = GaussianNB().fit(X[:900], y[:900])
    >>> calibrated = CalibratedClassifier(classifier, method="ts").fit(X[900:], y[900:])
    >>> bool(calibrated.calibrator_.temperature_ > 2)
    True
    """

    def __init__(
        self,
        estimator: BaseEstimator,
        method: str = "ets",
        *,
        features: Features | None = None,
        k: Literal["auto"] | int = "auto",
    ) -> None:
        self.estimator = estimator
        self.method = method
        self.features = features
        self.k = k

    def fit(
        self, X: object, y: object, *, X_train: object = None, X_shifted: object = None, y_shifted: object = None
    ) -> Self:
        """Fit the calibrator on samples that the estimator was not fitted on.

        Parameters
        ----------
        X, y : array-like
            The validation set.
        X_train : array-like, optional
            The samples that the estimator was fitted on; required by ``dac``.
        X_shifted, y_shifted : array-like, optional
            For ``dac``: labelled shifted samples, such as perturbed copies of the validation set. The temperature is
            then fitted to stay calibrated under shift.
        """
        check_is_fitted(self.estimator)
        if (X_shifted is None) != (y_shifted is None):
            raise ValueError("X_shifted and y_shifted must be passed together.")
        self.classes_ = np.asarray(self.estimator.classes_)
        if self.classes_.ndim != 1:
            raise ValueError("estimator must predict one label per sample, got a multi-output classifier.")
        bank = self._bank(X_train) if has_dac(self.method) else None
        validation = self._outputs(X, y)
        self._compare_predictions(X, validation.logits)
        shifted = None if X_shifted is None else self._outputs(X_shifted, y_shifted)
        self.calibrator_: Calibrator = make_calibrator(self.method, bank=bank).fit(validation, shifted=shifted)
        if hasattr(self.estimator, "n_features_in_"):
            self.n_features_in_ = self.estimator.n_features_in_
        return self

    def predict_proba(self, X: object) -> NDArray[np.floating]:
        """Return calibrated probabilities of shape (n_samples, n_classes), columns in the order of ``classes_``."""
        check_is_fitted(self, "calibrator_")
        return np.asarray(self.calibrator_.predict_proba(self._outputs(X)))

    def predict(self, X: object) -> NDArray[np.generic]:
        """Return the most probable class of each sample."""
        best = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[best])

    def confidence(self, X: object) -> NDArray[np.floating]:
        """Return the calibrated confidence in each prediction, of shape (n_samples,)."""
        check_is_fitted(self, "calibrator_")
        return np.asarray(self.calibrator_.confidence(self._outputs(X)))

    def __sklearn_clone__(self) -> Self:
        # A clone keeps the fitted estimator, because fit calibrates it and does not refit it.
        return type(self)(**self.get_params(deep=False))

    def _compare_predictions(self, X: Any, logits: Any) -> None:
        """Warn if the estimator does not predict its most probable class, since the predictions then change."""
        if not hasattr(self.estimator, "predict"):
            return
        agree = float(np.mean(self.classes_[logits.argmax(axis=1)] == np.ravel(self.estimator.predict(X))))
        if agree < ENOUGH_AGREEMENT:
            warnings.warn(
                f"{type(self.estimator).__name__} predicts its most probable class for only {agree:.1%} of the "
                "samples; it may use a threshold or votes. The calibrated classifier predicts the most probable class, "
                "so its predictions differ.",
                CalibrationWarning,
                stacklevel=3,
            )

    def _outputs(self, X: Any, y: Any = None) -> Outputs:
        return Outputs(self._logits(X), None if y is None else self._indices(y), self._features(X))

    def _indices(self, y: Any) -> Any:
        y = np.asarray(y)
        if y.ndim != 1:
            raise ValueError(f"y must have shape (n_samples,), one class per sample, got {y.shape}.")
        positions = {label: position for position, label in enumerate(self.classes_.tolist())}
        unknown = sorted({label for label in y.tolist() if label not in positions}, key=str)
        if unknown:
            raise ValueError(f"y holds the classes {unknown}, but the estimator was fitted on {list(positions)}.")
        return np.array([positions[label] for label in y.tolist()])

    def _logits(self, X: Any) -> Any:
        """Return the logarithm of the predicted probabilities, or else the decision function."""
        if hasattr(self.estimator, "predict_proba"):
            return np.log(np.maximum(self.estimator.predict_proba(X), SMALLEST_PROBABILITY))
        if not hasattr(self.estimator, "decision_function"):
            raise TypeError(f"{type(self.estimator).__name__} has neither predict_proba nor decision_function.")
        scores = np.asarray(self.estimator.decision_function(X), dtype=np.float64)
        last, _ = _last_step(self.estimator, None)
        pairwise = getattr(last, "decision_function_shape", None) == "ovo" and len(self.classes_) > 2
        if pairwise or (scores.ndim == 2 and scores.shape[1] != len(self.classes_)):
            raise ValueError(
                f"{type(last).__name__}'s decision_function returns {scores.shape[1]} scores for {len(self.classes_)} "
                "classes, but calibration needs one score per class. If the scores are pairwise, use "
                "decision_function_shape='ovr' or probability=True."
            )
        # With two classes the single score is the logit of the second class.
        return np.stack([np.zeros_like(scores), scores], axis=1) if scores.ndim == 1 else scores

    def _features(self, X: Any) -> Mapping[str, Any] | None:
        """Return all layers; the bank selects those that it holds."""
        if not has_dac(self.method):
            return None
        if self.features is not None:
            return self.features(X)
        network, given = _last_step(self.estimator, X)
        if isinstance(network, MLPClassifier):
            return {**hidden_layers(network, given), OUTPUT: self._logits(X)}
        raise ValueError(
            f"method {self.method!r} needs features, and densecal cannot extract them from {type(network).__name__}. "
            "Pass features=, a function that maps X to {name: array of shape (n_samples, width)}."
        )

    def _bank(self, X_train: Any) -> FeatureBank:
        if X_train is None:
            raise ValueError(
                f"method {self.method!r} needs distances from the training data: pass fit(X, y, X_train=...)."
            )
        features = dict(self._features(X_train) or {})
        if self.features is None and len(self.classes_) == 2 and len(features) > 1:
            # Two normalised logits take few directions, so most distances would be zero.
            del features[OUTPUT]
        samples = len(next(iter(features.values())))
        return FeatureBank(features, k=choose_k(samples, len(self.classes_)) if self.k == "auto" else self.k)


def hidden_layers(network: MLPClassifier, X: Any) -> dict[str, Any]:
    """Return the activations of the hidden layers of a fitted ``MLPClassifier``."""
    activations: dict[str, Callable[[Any], Any]] = {
        "identity": lambda values: values,
        "logistic": expit,
        "tanh": np.tanh,
        "relu": lambda values: np.maximum(values, 0),
    }
    activation = activations[network.activation]
    values = X if issparse(X) else np.asarray(X)
    layers: dict[str, Any] = {}
    for number, (weights, bias) in enumerate(zip(network.coefs_[:-1], network.intercepts_[:-1], strict=True), start=1):
        values = activation(np.asarray(values @ weights) + bias)
        layers[f"hidden{number}"] = values
    return layers


def _last_step(estimator: Any, X: Any) -> tuple[Any, Any]:
    """Return the classifier inside pipelines, searches and frozen estimators, and its transformed input."""
    while True:
        if isinstance(estimator, Pipeline):
            X = estimator[:-1].transform(X) if X is not None and len(estimator) > 1 else X
            estimator = estimator[-1]
        elif hasattr(estimator, "best_estimator_"):
            estimator = estimator.best_estimator_
        elif type(estimator).__name__ == "FrozenEstimator":
            estimator = estimator.estimator
        else:
            return estimator, X
