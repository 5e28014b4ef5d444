"""Where the distances of a table's rows are measured: layers of a network, a step of a pipeline, a transformer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy.sparse import issparse
from scipy.special import expit
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline

from densecal.sklearn.scores import last_step

OUTPUT = "logits"

Features = Callable[[Any], Mapping[str, Any]]


def extract_features(source: Any, estimator: Any, X: Any, logits: Any) -> dict[str, Any]:
    """Return named arrays of shape (n_samples, width) from a source that ``CalibratedClassifier(features=)`` takes."""
    if isinstance(source, str):
        return {source: _dense(_up_to(estimator, source).transform(X))}
    if hasattr(source, "transform"):
        return {type(source).__name__.lower(): _dense(source.transform(X))}
    if source is not None:
        return dict(source(X))
    network, given = last_step(estimator, X)
    if not isinstance(network, MLPClassifier):
        raise ValueError(
            f"dac needs features, and {type(network).__name__} has no hidden layers. Pass features=: the name of a "
            "pipeline step, such as the one that scales and encodes the columns, a transformer, or a function that "
            "maps X to {name: array of shape (n_samples, width)}."
        )
    layers = hidden_layers(network, given)
    if logits.shape[1] == 2 and layers:
        return layers  # two normalised logits take few directions, so most distances would be zero
    return {**layers, OUTPUT: logits}


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


def _up_to(estimator: Any, step: str) -> Pipeline:
    """Return the steps of the pipeline up to the named one."""
    while not isinstance(estimator, Pipeline):
        inner = getattr(estimator, "best_estimator_", None) or getattr(estimator, "estimator", None)
        if inner is None:
            raise ValueError(
                f"features={step!r} names a step of a pipeline, but estimator is a {type(estimator).__name__}. Put "
                "the classifier into a Pipeline, or pass a transformer."
            )
        estimator = inner
    names = [name for name, _ in estimator.steps[:-1]]
    if step not in names:
        raise ValueError(f"features={step!r} is not a transforming step of the pipeline: it has {names}.")
    return estimator[: names.index(step) + 1]


def _dense(values: Any) -> Any:
    return values.toarray() if issparse(values) else np.asarray(values)
