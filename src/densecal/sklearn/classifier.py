"""CalibratedClassifier: calibrate a scikit-learn classifier, fitted or not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, TransformerMixin, clone
from sklearn.model_selection import BaseCrossValidator
from sklearn.utils import indexable
from sklearn.utils.validation import _check_sample_weight, check_is_fitted

from densecal.arrays import probability_floor, to_logits
from densecal.calibrators.base import Calibrator
from densecal.calibrators.registry import make_calibrator
from densecal.calibrators.temperature import Loss
from densecal.calibrators.validation_warnings import label_cautions
from densecal.errors import warn_user
from densecal.estimation.accuracy_estimate import AccuracyEstimate
from densecal.io import artefacts
from densecal.outputs import Outputs
from densecal.sklearn.conventions import (
    calibration_weights,
    check_complete,
    label_indices,
    method_name,
    warn_if_predictions_differ,
)
from densecal.sklearn.files import describe_estimators, read_calibration
from densecal.sklearn.held_out import Density, find_copies, read_domains
from densecal.sklearn.outputs import EstimatorOutputs
from densecal.sklearn.responses import Features


class CalibratedClassifier(EstimatorOutputs, ClassifierMixin, MetaEstimatorMixin, BaseEstimator):  # type: ignore[misc]
    """Calibrate a scikit-learn classifier with one of densecal's methods.

    Parameters
    ----------
    estimator : classifier, optional
        An unfitted classifier is cloned and fitted by cross-validation, and the calibrator is fitted on the outputs on
        the held-out folds. A fitted one without ``cv``, or a ``FrozenEstimator``, is not refitted: pass new samples to
        ``fit``, not those that it was fitted on. The object itself is never changed. By default ``LinearSVC``, as in
        ``CalibratedClassifierCV``.
    method : str, default "auto"
        The short name of a calibrator, or several joined by +. ``"auto"`` is ``beta`` for two classes and ``dir`` for
        more. With ``dac`` the confidence also depends on the distance of the sample from the training data.
        scikit-learn's ``sigmoid``, ``isotonic`` and ``temperature`` are ``platt``, ``ir`` and ``ts``.
    cv : int, cross-validation splitter or iterable of splits, optional
        By default 5 stratified folds, and none for a fitted estimator. With ``cv=5``, clones of a fitted one are
        refitted on the data of ``fit``, which may be its training data, as in ``CalibratedClassifierCV``.
    features : callable, str or transformer, optional
        For ``dac``, the features whose distances are measured: the name of a step of the estimator's pipeline, such as
        the one that scales and encodes the columns; a transformer; or a function that maps X to a mapping from layer
        names to arrays of shape (n_samples, width). By default, the hidden layers and, for more than two classes, the
        output of an ``MLPClassifier``, which may be inside a ``Pipeline``, a search or a ``FrozenEstimator``.
    k : int or "auto"
        For ``dac``: measure to the k-th nearest neighbour. ``"auto"`` chooses k, and centres for the shift fit.
    loss : {"nll", "brier"}, optional
        The loss of ``ts``, ``ets`` and ``dac``, as in :func:`~densecal.make_calibrator`.
    n_jobs : int, optional
        The number of folds to fit at the same time.
    ensemble : bool or "auto", default "auto"
        With cross-validation: whether to average the calibrated probabilities of the classifiers of all folds, which is
        usually better, or to fit another clone on all samples, which predicts faster. ``"auto"`` averages, except with
        ``dac``, which measures distances from the training data of a single classifier.

    Attributes
    ----------
    estimators_ : list of classifiers
        The fitted classifiers whose calibrated probabilities are averaged: one, or one per fold.
    calibrators_ : list of Calibrator
        The fitted calibrator of each of them.
    estimator_, calibrator_ : classifier, Calibrator
        The only items of these lists; not available for an ensemble.
    classes_ : ndarray
        The classes.
    probability_floor_ : float or None
        The value that replaces predicted probabilities of zero: half the smallest positive one. None for decision
        functions.

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
        estimator: BaseEstimator | None = None,
        method: str = "auto",
        *,
        cv: int | BaseCrossValidator | None = None,
        features: Features | str | TransformerMixin | None = None,
        k: Literal["auto"] | int = "auto",
        loss: Loss | None = None,
        n_jobs: int | None = None,
        ensemble: Literal["auto"] | bool = "auto",
    ) -> None:
        self.estimator = estimator
        self.method = method
        self.cv = cv
        self.features = features
        self.k = k
        self.loss = loss
        self.n_jobs = n_jobs
        self.ensemble = ensemble

    def fit(
        self,
        X: object,
        y: object,
        sample_weight: object = None,
        *,
        X_train: object = None,
        X_shifted: object = None,
        y_shifted: object = None,
        shifted_copies: bool = True,
        **fit_params: object,
    ) -> Self:
        """Fit the calibrator, and the estimator unless it is fitted.

        Parameters
        ----------
        X, y : array-like
            The training set, or samples that a fitted estimator was not fitted on.
        sample_weight : array-like, optional
            Weights for the estimator and, as in ``Calibrator.fit``, for the methods ``beta``, ``platt`` and ``dir``.
        X_train : array-like, optional
            For ``dac`` with a fitted estimator: the samples that it was fitted on.
        X_shifted, y_shifted : array-like or mapping, optional
            For ``dac``: labelled shifted samples, or mappings of named domains, for a fit that stays calibrated under
            shift. If all domains have the same rows, as from ``table_domains``, ``y_shifted`` may be one array.
        shifted_copies : bool, default True
            With cross-validation: whether row i of a domain with as many rows as X is a perturbed copy of row i of X.
            The copy is then held out with that row, because the estimator is more accurate on copies of its training
            samples than on new samples. Other domains, and all domains with False, are evaluated by the estimator
            fitted on all of X, so they must not contain copies of its rows.
        **fit_params
            Arguments of the estimator's ``fit``, split with X if they have one value per sample.
        """
        domains = read_domains(X_shifted, y_shifted)
        X, y = indexable(X, y)
        check_complete(y)
        weights = None if sample_weight is None else _check_sample_weight(sample_weight, X)
        k = None if domains is not None and self.k == "auto" else self.k
        density = Density(self.features, k) if self._measures_distances() else None
        if is_fitted := self._uses_fitted_estimator():
            held_out, bank = self._use_fitted(X, fit_params, X_train, density)
        else:
            copies = find_copies(domains, X) if shifted_copies else {}
            held_out, bank = self._cross_validate(X, y, weights, fit_params, X_train, density, copies)
        labels = label_indices(y, self.classes_)
        values = np.concatenate([part.values for part in held_out])
        self.probability_floor_ = probability_floor(values) if held_out[0].are_probabilities else None
        warn_if_predictions_differ(self.estimators_[0], X, self.classes_)
        if is_fitted:
            outputs = Outputs(to_logits(values, self.probability_floor_), labels)
            for caution in label_cautions(outputs, [*map(str, self.classes_)]):
                warn_user(caution)
        calibrator = make_calibrator(method_name(self.method, len(self.classes_)), bank=bank, loss=self.loss)
        if weights is not None:
            weights = calibration_weights(calibrator, weights, self.estimator_to_fit(), is_fitted)
        shifted = self._shifted_outputs(domains, held_out[0].copies)
        self.calibrators_: list[Calibrator] = [
            part.fit(clone(calibrator), labels, weights, shifted, self.probability_floor_) for part in held_out
        ]
        return self

    def predict_proba(self, X: object) -> NDArray[np.floating]:
        """Return calibrated probabilities of shape (n_samples, n_classes), columns in the order of ``classes_``."""
        check_is_fitted(self)
        pairs = zip(self.calibrators_, self.estimators_, strict=True)
        parts = [one.predict_proba(self._outputs(X, member=member)) for one, member in pairs]
        return np.asarray(np.mean(parts, axis=0))

    def predict(self, X: object) -> NDArray[np.generic]:
        """Return the most probable class of each sample."""
        best = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[best])

    def confidence(self, X: object) -> NDArray[np.floating]:
        """Return the calibrated confidence in each prediction, of shape (n_samples,)."""
        check_is_fitted(self)
        if len(self.estimators_) > 1:
            return np.asarray(self.predict_proba(X).max(axis=1))
        return np.asarray(self.calibrator_.confidence(self._outputs(X)))

    def outputs(self, X: object, y: object = None) -> Outputs:
        """Return the input of the calibrator: logits, the features that ``dac`` measures and, if given, the labels.

        A label is its position in ``classes_``. Use ``outputs(X).save(path)`` and ``save`` to write files for the
        commands, such as ``densecal monitor``. If the estimator predicts probabilities, the logits are their
        logarithms, and the commands need ``--assume-logits``. An ensemble of classifiers has no common outputs: use
        ``ensemble=False``.
        """
        check_is_fitted(self)
        return self._outputs(X, y, self.estimator_)

    def estimate_accuracy(self, X: object) -> AccuracyEstimate:
        """Estimate the accuracy of the classifier on unlabelled samples.

        The method must be ``dac``, fitted with ``X_shifted``. The samples must not be selected by confidence or class,
        as for ``Calibrator.estimate_accuracy``.
        """
        check_is_fitted(self)
        return self.calibrators_[0].estimate_accuracy(self._outputs(X))

    def adapted_to(self, X: object) -> Self:
        """Return a copy that is calibrated for unlabelled samples, as by ``Calibrator.adapted_to``."""
        check_is_fitted(self)
        adapted = copy(self)
        adapted.calibrators_ = [self.calibrators_[0].adapted_to(self._outputs(X))]
        return adapted

    def save(self, path: str | Path, *, metadata: Mapping[str, object] | None = None) -> None:
        """Write the calibration, without ``estimators_``, to one safetensors file. Nothing is pickled."""
        check_is_fitted(self)
        joined = describe_estimators(self.estimators_, self.features, self.probability_floor_)
        states = [calibrator.state() for calibrator in self.calibrators_]
        artefacts.write_several(path, states, metadata={**(metadata or {}), "sklearn": joined})

    @classmethod
    def load(
        cls,
        path: str | Path,
        estimator: BaseEstimator | Sequence[BaseEstimator],
        *,
        features: Features | TransformerMixin | None = None,
        check_classifier: bool = True,
    ) -> Self:
        """Combine a calibration that ``save`` wrote with the fitted estimators that it belongs to.

        Parameters
        ----------
        path : str or Path
        estimator : estimator or list of estimators
            ``estimators_`` of the saved object, or its only item.
        features : optional
            ``features_`` of the saved object, unless that was the name of a step.
        check_classifier : bool
            Raise an error if the estimators or their steps have other types or columns than the saved ones, or other
            outputs for a few made-up rows of numbers. Of a pipeline that accepts no numbers, the last step is compared;
            if that accepts none either, there is a warning.
        """
        members = list(estimator) if isinstance(estimator, Sequence) else [estimator]
        calibrators, joined = read_calibration(path, members, check_classifier=check_classifier)
        features = joined["features"] if features is None else features
        loaded = cls(members[0], calibrators[0].short_name, features=features)
        if len(members) > 1:  # a refit works in the same way
            loaded.set_params(estimator=clone(members[0]), cv=len(members), ensemble=True)
        loaded._join(members)
        loaded.features_, loaded.probability_floor_ = features, joined["probability_floor"]
        loaded.calibrators_ = calibrators
        return loaded

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "calibrators_")
