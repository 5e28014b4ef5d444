"""The outputs of an estimator on samples that it was not fitted on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import check_cv
from sklearn.utils import _safe_indexing
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_method_params, _num_samples, column_or_1d

from densecal.arrays import to_logits
from densecal.arrays.checks import check_features, count_samples
from densecal.calibrators.base import Calibrator
from densecal.density.bank import FeatureBank
from densecal.density.defaults import choose_k
from densecal.sklearn.responses import extract_features, is_fitted, response

Domains: TypeAlias = dict[str | None, tuple[Any, Any]]
"""Samples and labels by the name of the domain, which is None for samples that are not named."""


def read_domains(X: Any, y: Any) -> Domains | None:
    """Return the shifted samples and their labels; one array of labels may serve all domains."""
    if (X is None) != (y is None):
        raise ValueError("X_shifted and y_shifted must be passed together.")
    if X is None:
        return None
    is_list_of_tables = isinstance(X, list) and bool(X) and getattr(X[0], "ndim", 0) > 1
    if is_list_of_tables or (isinstance(y, Mapping) and (not isinstance(X, Mapping) or X.keys() != y.keys())):
        raise ValueError(
            "X_shifted and y_shifted must be two arrays, or two mappings with the same names of domains: "
            "X_shifted={'night/weak': X1, ...}, y_shifted={'night/weak': y1, ...}."
        )
    samples: Mapping[str | None, Any] = X if isinstance(X, Mapping) else {None: X}
    domains = {name: (one, y[name] if isinstance(y, Mapping) else y) for name, one in samples.items()}
    for name, (one, labels) in domains.items():
        if _num_samples(one) != _num_samples(labels):
            place = "X_shifted" if name is None else f"X_shifted[{name!r}]"
            raise ValueError(
                f"{place} has {_num_samples(one)} samples, but y_shifted has {_num_samples(labels)} labels for it. If "
                "the domains have different rows, pass a mapping from their names to their labels."
            )
    return domains


def find_copies(domains: Domains | None, X: Any) -> dict[str | None, Any]:
    """Return the domains that have as many rows as X."""
    return {name: one for name, (one, _) in (domains or {}).items() if _num_samples(one) == _num_samples(X)}


@dataclass
class HeldOut:
    """Responses to samples, which rows of X they belong to, and their distances from the training data.

    ``copies`` has the same data for shifted copies of these samples, by domain.
    """

    values: Any
    are_probabilities: bool
    rows: Any
    distances: Any = None
    copies: Mapping[str | None, HeldOut] = field(default_factory=dict)

    @classmethod
    def concatenate(cls, parts: Sequence[HeldOut]) -> HeldOut:
        """Return the responses of several parts together."""
        values, rows = (np.concatenate([getattr(part, name) for part in parts]) for name in ("values", "rows"))
        distances = None if parts[0].distances is None else np.concatenate([part.distances for part in parts])
        copies = {name: cls.concatenate([part.copies[name] for part in parts]) for name in parts[0].copies}
        return cls(values, parts[0].are_probabilities, rows, distances, copies)

    def fit(self, calibrator: Calibrator, labels: Any, weights: Any, shifted: Any, floor: float | None) -> Calibrator:
        """Fit a calibrator on these responses, given the labels and weights of all samples, and return it."""
        own = None if weights is None else weights[self.rows]
        if own is not None and weights.any() and not own.any():
            raise ValueError(
                "sample_weight must be positive for some samples that a cross-validation fold holds out, but one fold "
                "has none. Use another cv, such as StratifiedKFold(shuffle=True), or ensemble=False."
            )
        logits = to_logits(self.values, floor)
        return calibrator.fit(logits, labels[self.rows], distances=self.distances, shifted=shifted, sample_weight=own)


@dataclass
class Density:
    """How to measure distances: the source of the features and k, None for centres."""

    source: Any
    k: Any

    def fitted(self, X: Any) -> Density:
        """Return this with a transformer fitted on X, unless the source is none or is fitted already."""
        is_unfitted = hasattr(self.source, "transform") and not is_fitted(self.source)
        return replace(self, source=clone(self.source).fit(X)) if is_unfitted else self

    def bank(self, features: Mapping[str, Any], n_classes: int) -> FeatureBank:
        """Return the bank of the samples that an estimator was fitted on, given their features."""
        k = choose_k(count_samples(check_features(features)), n_classes) if self.k == "auto" else self.k
        return FeatureBank(features, k=k)


def split_samples(cv: Any, X: Any, y: Any, to_split: Mapping[str, Any]) -> tuple[Any, list[tuple[Any, Any]]]:
    """Return the labels as an array, and the training and held-out rows of each split."""
    if isinstance(cv, str):
        raise ValueError(f"cv must be a number of folds or a splitter, got {cv!r}. A fitted estimator needs no cv.")
    check_classification_targets(y)
    y = column_or_1d(y, warn=True)
    classes = set(y.tolist())
    if len(classes) < 2:
        raise ValueError(f"y must hold at least two classes, got one class: {list(classes)}.")
    splits = list(check_cv(cv, y, classifier=True).split(X, y, **to_split))
    for train, _ in splits:
        if missing := sorted(classes - set(y[train].tolist()), key=str):
            raise ValueError(
                f"The class {missing[0]!r} is missing from the training part of a cross-validation split. Use a "
                "smaller cv, a stratified splitter, or more samples of that class."
            )
    return y, splits


def evaluate_held_out(
    estimator: Any,
    X: Any,
    y: Any,
    train: Any,
    test: Any,
    fit_params: Mapping[str, Any],
    density: Density | None,
    copies: Mapping[str | None, Any],
) -> tuple[Any, HeldOut]:
    """Fit the estimator on the training rows; return it and its outputs on the held-out rows of X and of the copies."""
    X_train = _safe_indexing(X, train)
    estimator.fit(X_train, y[train], **_check_method_params(X, fit_params, train))
    if density is None:
        return estimator, HeldOut(*response(estimator, _safe_indexing(X, test)), test)
    density = density.fitted(X_train)
    bank = density.bank(extract_features(density.source, estimator, X_train), len(estimator.classes_))

    def measure(samples: Any) -> HeldOut:
        some = _safe_indexing(samples, test)
        known = response(estimator, some)
        distances = bank.distances(extract_features(density.source, estimator, some, known))
        return HeldOut(*known, test, np.asarray(distances))

    return estimator, replace(measure(X), copies={name: measure(copy) for name, copy in copies.items()})
