"""What a fitted scikit-learn classifier says about samples: probabilities or scores, as logits."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.exceptions import NotFittedError
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted


def is_fitted(candidate: object) -> bool:
    """Return whether an object is a fitted estimator."""
    if not isinstance(candidate, BaseEstimator) and not hasattr(candidate, "fit"):
        return False
    try:
        check_is_fitted(candidate)
    except (NotFittedError, TypeError):
        return False
    return True


def response(estimator: Any, X: Any, n_classes: int) -> tuple[Any, bool]:
    """Return the predicted probabilities and True, or else the scores of the decision function and False."""
    if hasattr(estimator, "predict_proba"):
        return np.asarray(estimator.predict_proba(X), dtype=np.float64), True
    if not hasattr(estimator, "decision_function"):
        raise TypeError(f"{type(estimator).__name__} has neither predict_proba nor decision_function.")
    scores = np.asarray(estimator.decision_function(X), dtype=np.float64)
    last, _ = last_step(estimator, None)
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
    while True:
        if isinstance(estimator, Pipeline):
            X = estimator[:-1].transform(X) if X is not None and len(estimator) > 1 else X
            estimator = estimator[-1]
        elif hasattr(estimator, "best_estimator_"):
            estimator = estimator.best_estimator_
        elif isinstance(estimator, FrozenEstimator):
            estimator = estimator.estimator
        else:
            return estimator, X
