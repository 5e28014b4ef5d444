"""The outputs of the estimators of a calibrated classifier: on held-out samples for the fit, and on new samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted

from densecal.arrays import Array, to_logits
from densecal.arrays.checks import check_features
from densecal.calibrators.dac.shift_fit import Shifted, ShiftedSet
from densecal.calibrators.registry import has_dac
from densecal.density.bank import FeatureBank
from densecal.density.duplicates import DuplicateCheck
from densecal.outputs import Outputs
from densecal.sklearn.conventions import Conventions, label_indices
from densecal.sklearn.held_out import Density, Domains, HeldOut, evaluate_held_out, split_samples
from densecal.sklearn.responses import extract_features, response

DEFAULT_FOLDS = 5


class EstimatorOutputs(Conventions):
    """The methods of a calibrated classifier that fit its estimators and compute their outputs."""

    method: str
    n_jobs: int | None
    ensemble: Any
    estimators_: list[Any]
    classes_: Any
    features_: Any
    probability_floor_: float | None

    def _measures_distances(self) -> bool:
        return self.method != "auto" and has_dac(self.method)

    def _outputs(self, X: Any, y: Any = None, member: Any = None) -> Outputs:
        member = self.estimators_[0] if member is None else member
        known = response(member, X)
        features = self._features(member, X, known) if self._measures_distances() else None
        labels = None if y is None else label_indices(y, self.classes_)
        return Outputs(to_logits(known[0], self.probability_floor_), labels, features)

    def _features(self, member: Any, X: Any, known: tuple[Any, bool] | None = None) -> dict[str, Array]:
        return check_features(extract_features(self.features_, member, X, known))

    def _shifted_outputs(self, domains: Domains | None, held_out: Mapping[str | None, HeldOut]) -> Shifted | None:
        """Return the outputs of shifted samples: on held-out copies, or else those of the fitted estimator."""
        if domains is None:
            return None
        found: dict[Any, ShiftedSet] = {}
        for name, (X, y) in domains.items():
            if name in held_out:
                part = held_out[name]
                labels = label_indices(y, self.classes_, "y_shifted")[part.rows]
                found[name] = to_logits(part.values, self.probability_floor_), labels, part.distances
            else:
                found[name] = self._outputs(X, y)
        return found.get(None, found)

    def _use_fitted(
        self, X: Any, fit_params: Mapping[str, Any], X_train: Any, density: Density | None
    ) -> tuple[list[HeldOut], FeatureBank | None]:
        """Return the outputs of the fitted estimator, and the bank of the samples that it was fitted on."""
        if fit_params:
            raise TypeError(f"fit got {list(fit_params)}, but the estimator is fitted and is not refitted.")
        if density is not None and X_train is None:
            raise ValueError(
                f"method {self.method!r} needs distances from the training data: pass fit(X, y, X_train=...)."
            )
        check_is_fitted(self.estimator)
        self._join([self.estimator])
        known = response(self.estimator, X)
        if density is None:
            return [HeldOut(*known, slice(None))], None
        self.features_ = density.fitted(X_train).source
        features, trained_on = self._features(self.estimator, X, known), self._features(self.estimator, X_train)
        bank = density.bank(trained_on, len(self.classes_))
        distances = np.asarray(bank.distances(features))
        duplicates = DuplicateCheck({layer: features[layer] for layer in bank.layers})
        duplicates.update(trained_on)
        duplicates.warn()
        return [HeldOut(*known, slice(None), distances)], bank

    def _cross_validate(
        self,
        X: Any,
        y: Any,
        weights: Any,
        fit_params: Mapping[str, Any],
        X_train: Any,
        density: Density | None,
        copies: Mapping[str | None, Any],
    ) -> tuple[list[HeldOut], FeatureBank | None]:
        """Fit clones of the estimator; return their outputs on held-out samples, and the bank of all samples.

        If a class is missing from the held-out part of a split, every clone gets the outputs of all.
        """
        if density is not None and self.ensemble is True:
            raise ValueError(f"method {self.method!r} measures distances of one classifier: use ensemble=False.")
        if X_train is not None:
            raise ValueError("X_train= is for a fitted estimator. With cross-validation the training samples are X.")
        to_fit, to_split = self.route(weights, fit_params)
        y, splits = split_samples(DEFAULT_FOLDS if self.cv is None else self.cv, X, y, to_split)
        estimator = self.estimator_to_fit()
        parts = Parallel(n_jobs=self.n_jobs)(
            delayed(evaluate_held_out)(clone(estimator), X, y, *split, to_fit, density, copies) for split in splits
        )
        members, held_out = map(list, zip(*parts, strict=True))
        together = HeldOut.concatenate(held_out)
        if not (density is None if self.ensemble == "auto" else self.ensemble):
            members, held_out = [clone(estimator).fit(X, y, **to_fit)], [together]
        elif any(len(np.unique(y[part.rows])) < len(members[0].classes_) for part in held_out):
            held_out = [together] * len(members)
        self._join(members)
        if density is None:
            return held_out, None
        self.features_ = density.fitted(X).source
        return held_out, density.bank(self._features(members[0], X), len(self.classes_))

    def _join(self, members: list[Any]) -> None:
        self.estimators_ = members
        self.classes_ = np.asarray(members[0].classes_)
        if self.classes_.ndim != 1:
            raise ValueError("estimator must predict one label per sample, got a multi-output classifier.")
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(members[0], name):
                setattr(self, name, getattr(members[0], name))
