"""CalibratedClassifier: any fitted scikit-learn classifier, with honest probabilities."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, Self

import numpy as np
from scipy.sparse import issparse
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from densecal.bank import FeatureBank
from densecal.calibrators.base import Calibrator
from densecal.calibrators.registry import make_calibrator
from densecal.choices import choose_k

SMALLEST_PROBABILITY = 1e-12
"""Trees and neighbours answer with exact zeros, whose logarithm would be minus infinity."""

Features = Callable[[Any], Mapping[str, Any]]


class CalibratedClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Calibrate a fitted scikit-learn classifier with any method of densecal.

    Parameters
    ----------
    estimator : classifier
        Already fitted; it is used as it is.
    method : str, default "ets"
        A calibrator's short name, or several joined by +. With ``dac`` each input's confidence depends on its distance
        from the training data; ``fit`` then takes ``X_train``.
    features : callable, optional
        For ``dac``: gives the layers to measure, ``features(X)`` being a mapping from names to (samples, width)
        arrays. For an ``MLPClassifier``, also at the end of a ``Pipeline``, they are its hidden layers and its output,
        found by itself.
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

    def fit(self, X: Any, y: Any, *, X_train: Any = None) -> Self:
        """Learn the calibration on samples that the estimator was not fitted on.

        Parameters
        ----------
        X, y : array-like
            The validation set.
        X_train : array-like, optional
            What the estimator was fitted on; needed for ``dac``.
        """
        check_is_fitted(self.estimator)
        self.classes_ = np.asarray(self.estimator.classes_)
        if self.classes_.ndim != 1:
            raise ValueError("estimator must predict one label a sample; it was fitted on several at once.")
        labels = self._indices(y)
        bank = self._bank(X_train) if self._measures() else None
        calibrator = make_calibrator(self.method, bank=bank)
        self.calibrator_: Calibrator = calibrator.fit(self._logits(X), labels, features=self._features(X))
        if hasattr(self.estimator, "n_features_in_"):
            self.n_features_in_ = self.estimator.n_features_in_
        return self

    def predict_proba(self, X: Any) -> Any:
        """Return calibrated probabilities of shape (samples, classes), columns in the order of ``classes_``."""
        check_is_fitted(self, "calibrator_")
        return self.calibrator_.predict_proba(self._logits(X), features=self._features(X))

    def predict(self, X: Any) -> Any:
        """Return the most probable class of each sample."""
        best = self.predict_proba(X).argmax(axis=1)
        return self.classes_[best]

    def confidence(self, X: Any) -> Any:
        """Return the calibrated confidence in each prediction, of shape (samples,)."""
        check_is_fitted(self, "calibrator_")
        return self.calibrator_.confidence(self._logits(X), features=self._features(X))

    def _measures(self) -> bool:
        return "dac" in self.method.lower().replace(" ", "").split("+")

    def _indices(self, y: Any) -> Any:
        y = np.asarray(y)
        if y.ndim != 1:
            raise ValueError(f"y must have shape (samples,), one class a sample, got {y.shape}.")
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
        # One score decides between two classes; it is the second one's logit.
        return np.stack([np.zeros_like(scores), scores], axis=1) if scores.ndim == 1 else scores

    def _features(self, X: Any) -> Mapping[str, Any] | None:
        if not self._measures():
            return None
        if self.features is not None:
            return self.features(X)
        network, given = _last_step(self.estimator, X)
        if isinstance(network, MLPClassifier):
            return {**hidden_layers(network, given), "logits": self._logits(X)}
        raise ValueError(
            f"method {self.method!r} measures features, and {type(network).__name__} has no layers that densecal "
            "knows. Pass features=, a function that maps X to {name: array of shape (samples, width)}."
        )

    def _bank(self, X_train: Any) -> FeatureBank:
        if X_train is None:
            raise ValueError(
                f"method {self.method!r} measures distances from the training data: pass fit(X, y, X_train=...)."
            )
        features = self._features(X_train) or {}
        samples = len(next(iter(features.values())))
        return FeatureBank(features, k=choose_k(samples, len(self.classes_)) if self.k == "auto" else self.k)


def hidden_layers(network: MLPClassifier, X: Any) -> dict[str, Any]:
    """Return the activations of each hidden layer of a fitted ``MLPClassifier``.

    Examples
    --------
    >>> X, y = np.eye(4), [0, 1, 0, 1]
    >>> network = MLPClassifier((3, 2), max_iter=1, random_state=0)
    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     _ = network.fit(X, y)
    >>> {name: values.shape for name, values in hidden_layers(network, X).items()}
    {'hidden1': (4, 3), 'hidden2': (4, 2)}
    """
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
    """Return a pipeline's classifier and what it is given; any other estimator is its own last step."""
    if not isinstance(estimator, Pipeline):
        return estimator, X
    return estimator[-1], (estimator[:-1].transform(X) if len(estimator) > 1 else X)
