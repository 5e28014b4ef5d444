"""The outputs of an estimator on samples that it was not fitted on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import check_cv
from sklearn.utils import _safe_indexing
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import _check_method_params, column_or_1d

from densecal.arrays import SMALLEST_PROBABILITY, to_logits
from densecal.arrays.checks import check_features
from densecal.calibrators.base import Calibrator
from densecal.density.bank import FeatureBank
from densecal.density.defaults import choose_k
from densecal.density.duplicates import DuplicateCheck
from densecal.sklearn.responses import extract_features, is_fitted, network_features, response


@dataclass
class HeldOut:
    """Responses to samples, which rows of X they belong to, and their distances from the training data or features.

    ``copies`` has the same data for shifted copies of these samples, by domain.
    """

    values: Any
    are_probabilities: bool
    rows: Any
    distances: Any = None
    features: Any = None
    copies: Mapping[str | None, HeldOut] = field(default_factory=dict)

    @classmethod
    def concatenate(cls, parts: Sequence[HeldOut]) -> HeldOut:
        """Return the responses of several parts together."""
        values, rows = (np.concatenate([getattr(part, name) for part in parts]) for name in ("values", "rows"))
        distances = None if parts[0].distances is None else np.concatenate([part.distances for part in parts])
        copies = {name: cls.concatenate([part.copies[name] for part in parts]) for name in parts[0].copies}
        return cls(values, parts[0].are_probabilities, rows, distances, copies=copies)

    def fit(self, calibrator: Calibrator, labels: Any, weights: Any, shifted: Any, floor: float | None) -> Calibrator:
        """Fit a calibrator on these responses, given the labels and weights of all samples, and return it."""
        own = None if weights is None else weights[self.rows]
        if own is not None and weights.any() and not own.any():
            raise ValueError(
                "sample_weight must be positive for some samples that a cross-validation fold holds out, but one fold "
                "has none. Use another cv, such as StratifiedKFold(shuffle=True), or ensemble=False."
            )
        return calibrator.fit(
            to_logits(self.values, floor),
            labels[self.rows],
            features=self.features,
            distances=self.distances,
            shifted=shifted,
            sample_weight=own,
        )


@dataclass
class Density:
    """How to measure distances: the source of the features and k, None for centres."""

    source: Any
    k: Any

    def fitted_source(self, X: Any) -> Any:
        """Return the source of the features, a transformer fitted on X unless it is fitted already."""
        if hasattr(self.source, "transform") and not is_fitted(self.source):
            return clone(self.source).fit(X)
        return self.source

    def features(
        self, source: Any, estimator: Any, X: Any, n_classes: int, known: tuple[Any, bool] | None = None
    ) -> dict[str, Any]:
        """Return the features of samples; ``known`` is the estimator's response to them, if already computed."""
        if source is not None:
            return extract_features(source, estimator, X)
        values, are_probabilities = known or response(estimator, X, n_classes)
        return network_features(estimator, X, to_logits(values, SMALLEST_PROBABILITY if are_probabilities else None))

    def bank(
        self, source: Any, estimator: Any, X: Any, n_classes: int, held_out: Mapping[str, Any] | None = None
    ) -> FeatureBank:
        """Return the bank of the samples that the estimator was fitted on; warn if held-out samples are among them."""
        features = self.features(source, estimator, X, n_classes)
        n_samples = len(next(iter(features.values())))
        bank = FeatureBank(features, k=choose_k(n_samples, n_classes) if self.k == "auto" else self.k)
        if held_out is not None:
            given = check_features(held_out)
            # Differing layers or widths raise an error when the distances are measured.
            check = DuplicateCheck({name: one for name, one in given.items() if bank.widths.get(name) == one.shape[1]})
            check.update(check_features(features))
            check.warn()
        return bank


def cross_validate(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    cv: Any,
    to_fit: Mapping[str, Any],
    to_split: Mapping[str, Any],
    density: Density | None,
    n_jobs: int | None,
    ensemble: bool,
    copies: Mapping[str | None, Any],
) -> tuple[list[Any], list[HeldOut]]:
    """Fit clones of the estimator on the training part of each split, and one on all samples unless ``ensemble``.

    Return the clones of the splits, each with the outputs on its held-out samples, or the clone of all samples with all
    these outputs. If a class is missing from the held-out part of a split, every clone gets all outputs. Row i of the
    shifted ``copies`` is held out with row i of X.
    """
    if isinstance(cv, str):
        raise ValueError(f"cv must be a number of folds or a splitter, got {cv!r}. A fitted estimator needs no cv.")
    check_classification_targets(y)
    y = column_or_1d(y, warn=True)
    classes = np.unique(y)
    if len(classes) < 2:
        raise ValueError(f"y must hold at least two classes, got one class: {classes.tolist()}.")
    splits = list(check_cv(cv, y, classifier=True).split(X, y, **to_split))
    parts = Parallel(n_jobs=n_jobs)(
        delayed(_held_out_part)(clone(estimator), X, y, train, test, classes, to_fit, density, copies)
        for train, test in splits
    )
    members, held_out = map(list, zip(*parts, strict=True))
    together = HeldOut.concatenate(held_out)
    if not ensemble:
        return [clone(estimator).fit(X, y, **to_fit)], [together]
    complete = all(len(np.unique(y[part.rows])) == len(classes) for part in held_out)
    return members, held_out if complete else [together] * len(members)


def _held_out_part(
    estimator: Any,
    X: Any,
    y: Any,
    train: Any,
    test: Any,
    classes: Any,
    fit_params: Mapping[str, Any],
    density: Density | None,
    copies: Mapping[str | None, Any],
) -> tuple[Any, HeldOut]:
    X_train, y_train = _safe_indexing(X, train), _safe_indexing(y, train)
    missing = sorted(set(classes.tolist()) - set(np.asarray(y_train).tolist()), key=str)
    if missing:
        raise ValueError(
            f"The class {missing[0]!r} is missing from the training part of a cross-validation split. Use a smaller "
            "cv, a stratified splitter, or more samples of that class."
        )
    estimator.fit(X_train, y_train, **_check_method_params(X, fit_params, train))
    if density is None:
        return estimator, HeldOut(*response(estimator, _safe_indexing(X, test), len(classes)), test)
    source = density.fitted_source(X_train)
    bank = density.bank(source, estimator, X_train, len(classes))

    def measure(samples: Any) -> HeldOut:
        some = _safe_indexing(samples, test)
        known = response(estimator, some, len(classes))
        distances = bank.distances(density.features(source, estimator, some, len(classes), known))
        return HeldOut(*known, test, np.asarray(distances))

    return estimator, replace(measure(X), copies={name: measure(copy) for name, copy in copies.items()})
