"""The probabilities or scores of a fitted scikit-learn classifier, and the features of its inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.neural_network import MLPClassifier
from sklearn.neural_network._base import ACTIVATIONS
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from densecal.arrays import SMALLEST_PROBABILITY, to_logits

Features = Callable[[Any], Mapping[str, Any]]


def is_fitted(candidate: object) -> bool:
    """Return whether an object is a fitted estimator."""
    try:
        check_is_fitted(candidate)
    except (NotFittedError, TypeError):
        return False
    return True


def response(estimator: Any, X: Any) -> tuple[Any, bool]:
    """Return the predicted probabilities and True, or else the scores of the decision function and False."""
    if hasattr(estimator, "predict_proba"):
        return np.asarray(estimator.predict_proba(X), dtype=np.float64), True
    if not hasattr(estimator, "decision_function"):
        raise TypeError(f"{type(estimator).__name__} has neither predict_proba nor decision_function.")
    scores = np.asarray(estimator.decision_function(X), dtype=np.float64)
    last, n_classes = last_step(estimator, None)[0], len(estimator.classes_)
    pairwise = getattr(last, "decision_function_shape", None) == "ovo" and n_classes > 2
    if pairwise or (scores.ndim == 2 and scores.shape[1] != n_classes):
        raise ValueError(
            f"{type(last).__name__}'s decision_function returns {scores.shape[1]} scores for {n_classes} classes, but "
            "calibration needs one score per class. If the scores are pairwise, use decision_function_shape='ovr' or "
            "probability=True."
        )
    # With two classes the single score is the logit of the second class.
    return (np.stack([-scores / 2, scores / 2], axis=1) if scores.ndim == 1 else scores), False


def last_step(estimator: Any, X: Any) -> tuple[Any, Any]:
    """Return the classifier inside pipelines, searches and frozen estimators, and its transformed input."""
    estimator = unwrapped(estimator)
    while isinstance(estimator, Pipeline):
        X = estimator[:-1].transform(X) if X is not None and len(estimator) > 1 else X
        estimator = unwrapped(estimator[-1])
    return estimator, X


def unwrapped(estimator: Any) -> Any:
    """Return the estimator inside searches and frozen estimators."""
    while hasattr(estimator, "best_estimator_") or isinstance(estimator, FrozenEstimator):
        estimator = estimator.best_estimator_ if hasattr(estimator, "best_estimator_") else estimator.estimator
    return estimator


def extract_features(source: Any, estimator: Any, X: Any, known: tuple[Any, bool] | None = None) -> dict[str, Any]:
    """Return named arrays of shape (n_samples, width) from a source that ``CalibratedClassifier(features=)`` takes.

    ``known`` is the estimator's response to X, if already computed.
    """
    if source is None:
        return _network_features(estimator, X, *(known or response(estimator, X)))
    if isinstance(source, str):
        return {source: _dense(_up_to(estimator, source).transform(X))}
    if hasattr(source, "transform"):
        return {type(source).__name__.lower(): _dense(source.transform(X))}
    return dict(source(X))


def _network_features(estimator: Any, X: Any, values: Any, are_probabilities: bool) -> dict[str, Any]:
    """Return the hidden layers and, for more than two classes, the logits of a perceptron."""
    network, given = last_step(estimator, X)
    if not isinstance(network, MLPClassifier):
        raise ValueError(
            f"dac needs features, and {type(network).__name__} has no hidden layers. Pass features=: the name of a "
            "pipeline step, such as the one that scales and encodes the columns, a transformer, or a function that "
            "maps X to {name: array of shape (n_samples, width)}."
        )
    layers = hidden_layers(network, given)
    if values.shape[1] == 2 and layers:
        return layers  # two normalised logits take few directions, so most distances would be zero
    return {**layers, "logits": to_logits(values, SMALLEST_PROBABILITY if are_probabilities else None)}


def hidden_layers(network: MLPClassifier, X: Any) -> dict[str, Any]:
    """Return the activations of the hidden layers of a fitted ``MLPClassifier``."""
    values, layers = X if issparse(X) else np.asarray(X), {}
    for number, (weights, bias) in enumerate(zip(network.coefs_[:-1], network.intercepts_[:-1], strict=True), start=1):
        values = np.asarray(values @ weights) + bias
        ACTIVATIONS[network.activation](values)  # in place
        layers[f"hidden{number}"] = values
    return layers


def _up_to(estimator: Any, step: str) -> Pipeline:
    """Return the steps of the pipeline up to the named one."""
    pipeline = unwrapped(estimator)
    if not isinstance(pipeline, Pipeline):
        raise ValueError(
            f"features={step!r} names a step of a pipeline, but estimator is a {type(pipeline).__name__}. Put the "
            "classifier into a Pipeline, or pass a transformer."
        )
    names = [name for name, _ in pipeline.steps[:-1]]
    if step not in names:
        raise ValueError(f"features={step!r} is not a transforming step of the pipeline: it has {names}.")
    return pipeline[: names.index(step) + 1]


def _dense(values: Any) -> Any:
    return values.toarray() if issparse(values) else np.asarray(values)
