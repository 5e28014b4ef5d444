"""CalibratedClassifier: any fitted scikit-learn classifier, with calibrated probabilities."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any, Literal, Self

import numpy as np
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
"""Ties and the last digit aside, a classifier predicts its most probable class."""
SMALLEST_PROBABILITY = 1e-12
"""Trees and neighbours answer with exact zeros, whose logarithm would be minus infinity."""
OUTPUT = "logits"

Features = Callable[[Any], Mapping[str, Any]]


class CalibratedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Calibrate a fitted scikit-learn classifier with any method of densecal.

    Parameters
    ----------
    estimator : classifier
        Already fitted; it is used as it is, and stays fitted when this object is cloned, so that cross-validation and
        searches over ``method`` work. Its scores must not have been fitted on the samples calibrated or judged.
    method : str, default "ets"
        A calibrator's short name, or several joined by +. With ``dac`` each input's confidence depends on its distance
        from the training data; ``fit`` then takes ``X_train``.
    features : callable, optional
        For ``dac``: gives the layers to measure, ``features(X)`` being a mapping from names to (samples, width)
        arrays. For an ``MLPClassifier``, also inside a ``Pipeline``, a search or a ``FrozenEstimator``, they are its
        hidden layers and, for more than two classes, its output, found by itself.
    k : int or "auto"
        For ``dac``: which neighbour's distance; ``"auto"`` follows the size of the training set and the number of
        classes.

    Attributes
    ----------
    calibrator_ : Calibrator
        What was fitted.
    classes_ : ndarray
        The estimator's classes.

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
        estimator: Any,
        method: str = "ets",
        *,
        features: Features | None = None,
        k: Literal["auto"] | int = "auto",
    ) -> None:
        self.estimator = estimator
        self.method = method
        self.features = features
        self.k = k

    def fit(self, X: Any, y: Any, *, X_train: Any = None, X_shifted: Any = None, y_shifted: Any = None) -> Self:
        """Learn the calibration on samples that the estimator was not fitted on.

        Parameters
        ----------
        X, y : array-like
            The validation set.
        X_train : array-like, optional
            What the estimator was fitted on; needed for ``dac``.
        X_shifted, y_shifted : array-like, optional
            For ``dac``: labelled shifted samples, such as perturbed copies of the validation set. With them
            the temperature is fitted to stay calibrated under shift.
        """
        check_is_fitted(self.estimator)
        if (X_shifted is None) != (y_shifted is None):
            raise ValueError("X_shifted and y_shifted belong together: give both or neither.")
        self.classes_ = np.asarray(self.estimator.classes_)
        if self.classes_.ndim != 1:
            raise ValueError("estimator must predict one label per sample; it was fitted on several at once.")
        bank = self._bank(X_train) if has_dac(self.method) else None
        validation = self._outputs(X, y)
        self._compare_predictions(X, validation.logits)
        shifted = None if X_shifted is None else self._outputs(X_shifted, y_shifted)
        self.calibrator_: Calibrator = make_calibrator(self.method, bank=bank).fit(validation, shifted=shifted)
        if hasattr(self.estimator, "n_features_in_"):
            self.n_features_in_ = self.estimator.n_features_in_
        return self

    def predict_proba(self, X: Any) -> Any:
        """Return calibrated probabilities of shape (samples, classes), columns in the order of ``classes_``."""
        check_is_fitted(self, "calibrator_")
        return self.calibrator_.predict_proba(self._outputs(X))

    def predict(self, X: Any) -> Any:
        """Return the most probable class of each sample."""
        best = self.predict_proba(X).argmax(axis=1)
        return self.classes_[best]

    def confidence(self, X: Any) -> Any:
        """Return the calibrated confidence in each prediction, of shape (samples,)."""
        check_is_fitted(self, "calibrator_")
        return self.calibrator_.confidence(self._outputs(X))

    def __sklearn_clone__(self) -> Self:
        # A clone keeps the fitted estimator: there is nothing to calibrate in an unfitted one.
        return type(self)(**self.get_params(deep=False))

    def _compare_predictions(self, X: Any, logits: Any) -> None:
        """Warn of an estimator that does not predict its most probable class, for then predictions would change."""
        if not hasattr(self.estimator, "predict"):
            return
        agree = float(np.mean(self.classes_[logits.argmax(axis=1)] == np.ravel(self.estimator.predict(X))))
        if agree < ENOUGH_AGREEMENT:
            warnings.warn(
                f"{type(self.estimator).__name__} predicts its most probable class for only {agree:.1%} of the "
                "samples: it decides by another rule, a threshold or votes perhaps. The calibrated classifier predicts "
                "the most probable class, so its predictions differ.",
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
            raise ValueError(f"y holds the classes {unknown}, which the estimator does not know: {list(positions)}.")
        return np.array([positions[label] for label in y.tolist()])

    def _logits(self, X: Any) -> Any:
        """Return the logarithm of the estimator's probabilities, or its decision function where it has none."""
        if hasattr(self.estimator, "predict_proba"):
            return np.log(np.maximum(self.estimator.predict_proba(X), SMALLEST_PROBABILITY))
        if not hasattr(self.estimator, "decision_function"):
            raise TypeError(f"{type(self.estimator).__name__} has neither predict_proba nor decision_function.")
        scores = np.asarray(self.estimator.decision_function(X), dtype=np.float64)
        last, _ = _last_step(self.estimator, None)
        pairwise = getattr(last, "decision_function_shape", None) == "ovo" and len(self.classes_) > 2
        if pairwise or (scores.ndim == 2 and scores.shape[1] != len(self.classes_)):
            raise ValueError(
                f"{type(last).__name__}'s decision_function gives {scores.shape[1]} scores for {len(self.classes_)} "
                "classes, one for each pair of them perhaps; a calibration needs one for each class. Use "
                "decision_function_shape='ovr', or probability=True."
            )
        # One score decides between two classes; it is the second one's logit.
        return np.stack([np.zeros_like(scores), scores], axis=1) if scores.ndim == 1 else scores

    def _features(self, X: Any) -> Mapping[str, Any] | None:
        """Return every layer there is; the bank takes those that it holds."""
        if not has_dac(self.method):
            return None
        if self.features is not None:
            return self.features(X)
        network, given = _last_step(self.estimator, X)
        if isinstance(network, MLPClassifier):
            return {**hidden_layers(network, given), OUTPUT: self._logits(X)}
        raise ValueError(
            f"method {self.method!r} measures features, and {type(network).__name__} has no layers that densecal "
            "knows. Pass features=, a function that maps X to {name: array of shape (samples, width)}."
        )

    def _bank(self, X_train: Any) -> FeatureBank:
        if X_train is None:
            raise ValueError(
                f"method {self.method!r} measures distances from the training data: pass fit(X, y, X_train=...)."
            )
        features = dict(self._features(X_train) or {})
        if self.features is None and len(self.classes_) == 2 and len(features) > 1:
            # Two logits point one way or the other: most inputs would lie at distance zero.
            del features[OUTPUT]
        samples = len(next(iter(features.values())))
        return FeatureBank(features, k=choose_k(samples, len(self.classes_)) if self.k == "auto" else self.k)


def hidden_layers(network: MLPClassifier, X: Any) -> dict[str, Any]:
    """Return the activations of each hidden layer of a fitted ``MLPClassifier``."""
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
    """Return the classifier inside pipelines, searches and frozen estimators, and what it is given of X."""
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
