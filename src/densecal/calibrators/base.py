"""Calibrator: what every method shares, from the check at the door to the file on disk."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Self

from sklearn.base import BaseEstimator

from densecal.arrays import Array, is_torch, namespace, softmax
from densecal.arrays.checks import check_labels, check_logits
from densecal.calibrators.citation import Paper
from densecal.calibrators.solvers.top_class import keep_top_class
from densecal.errors import CalibrationWarning


class Calibrator(BaseEstimator):  # type: ignore[misc]
    """A map from a classifier's logits to honest probabilities, learned on a validation set.

    A method is one subclass in one file: it sets the class attributes, learns in ``_fit`` into attributes whose
    names end in an underscore (arrays, numbers, strings or lists: they are what ``save`` writes), and
    applies them in ``_probabilities``.

    Examples
    --------
    >>> class Halved(Calibrator):
    ...     short_name, full_name, accuracy_preserving = "half", "Halved logits", True
    ...
    ...     def _fit(self, logits, labels):
    ...         self.factor_ = 0.5
    ...
    ...     def _probabilities(self, logits):
    ...         return softmax(self.factor_ * logits)
    >>> import numpy as np
    >>> logits = np.array([[4.0, 0.0]] * 4)
    >>> Halved().fit(logits, [0, 0, 0, 1]).confidence(logits[:1]).round(2)
    array([0.88])
    """

    short_name: ClassVar[str]
    full_name: ClassVar[str]
    accuracy_preserving: ClassVar[bool]
    paper: ClassVar[Paper]
    fit_loss: ClassVar[str] = "brier"
    """The loss that a fit must not make worse than the uncalibrated logits': ``"brier"`` or ``"nll"``."""

    n_classes_: int
    is_identity_: bool

    def fit(
        self,
        logits: Array,
        labels: Array,
        *,
        features: Mapping[str, Array] | None = None,
        distances: Array | None = None,
    ) -> Self:
        """Learn the map on a validation set that the classifier was not trained on.

        Parameters
        ----------
        logits : array of shape (samples, classes)
            Scores before the softmax.
        labels : array of shape (samples,) or one-hot
            The true classes.
        features, distances : optional
            Used by density-aware methods; the others accept and ignore them, so that one call serves all.
        """
        logits = check_logits(logits)
        labels = check_labels(labels, logits.shape[0], logits.shape[1], like=logits)
        self.n_classes_ = int(logits.shape[1])
        self.is_identity_ = False
        self._fit(logits, labels)
        self._keep_the_better(logits, labels)
        return self

    def predict_proba(
        self, logits: Array, *, features: Mapping[str, Array] | None = None, distances: Array | None = None
    ) -> Array:
        """Return calibrated probabilities of shape (samples, classes), of the logits' kind, type and device."""
        logits = self._check_apply(logits)
        probabilities = softmax(logits) if self.is_identity_ else self._probabilities(logits)
        return keep_top_class(probabilities, logits) if self.accuracy_preserving else probabilities

    def confidence(
        self, logits: Array, *, features: Mapping[str, Array] | None = None, distances: Array | None = None
    ) -> Array:
        """Return each sample's calibrated top-1 confidence, of shape (samples,)."""
        probabilities = self.predict_proba(logits, features=features, distances=distances)
        return namespace(probabilities).max(probabilities, axis=1)

    def save(self, path: str | Path, *, half_precision_bank: bool = False) -> None:
        """Write the calibrator to one file, safetensors with a JSON header; ``densecal.load`` reads it."""
        from densecal.io.artefact import save_calibrator

        save_calibrator(self, path, half_precision_bank=half_precision_bank)

    @abstractmethod
    def _fit(self, logits: Array, labels: Array) -> None:
        """Learn from checked logits and integer labels."""

    @abstractmethod
    def _probabilities(self, logits: Array) -> Array:
        """Apply what was learned to checked logits."""

    def _check_apply(self, logits: Array) -> Array:
        if not hasattr(self, "n_classes_"):
            raise ValueError(f"This {type(self).__name__} is not fitted: call fit(logits, labels) first.")
        logits = check_logits(logits)
        if logits.shape[1] != self.n_classes_:
            raise ValueError(
                f"logits have {logits.shape[1]} classes, but this {type(self).__name__} was fitted on "
                f"{self.n_classes_}."
            )
        return logits

    def _fit_score(self, logits: Array, labels: Array) -> tuple[float, float]:
        """Return the loss on the validation set of the calibrated and of the uncalibrated probabilities."""
        return (
            mean_loss(self._probabilities(logits), labels, self.fit_loss),
            mean_loss(softmax(logits), labels, self.fit_loss),
        )

    def _keep_the_better(self, logits: Array, labels: Array) -> None:
        calibrated, uncalibrated = self._fit_score(logits, labels)
        # The last digits of a float32 sum must not turn a perfect fit into a warning.
        if calibrated <= uncalibrated * (1 + 1e-6) + 1e-9:
            return
        self.is_identity_ = True
        warnings.warn(
            f"{type(self).__name__} ended with a worse {self.fit_loss} loss on the validation set than the "
            f"uncalibrated logits ({calibrated:.6g} against {uncalibrated:.6g}); it returns those unchanged. The "
            f"validation set has {logits.shape[0]} samples: a larger one usually helps.",
            CalibrationWarning,
            stacklevel=3,
        )


def mean_loss(probabilities: Array, labels: Array, loss: str) -> float:
    """Return the mean squared error summed over classes, or the mean negative log-likelihood.

    Examples
    --------
    >>> import numpy as np
    >>> mean_loss(np.array([[0.5, 0.5]]), np.array([0]), "brier")
    0.5
    """
    xp = namespace(probabilities)
    true_class = take_label(probabilities, labels)
    if loss == "nll":
        return float(xp.mean(-xp.log(xp.clip(true_class, 1e-20, None))))
    return float(xp.mean(xp.sum(probabilities**2, axis=1) - 2 * true_class + 1))


def take_label(values: Array, labels: Array) -> Array:
    """Return each row's value in the column of its label, of shape (samples,).

    Examples
    --------
    >>> import numpy as np
    >>> take_label(np.array([[1, 2], [3, 4]]), np.array([1, 0]))
    array([2, 3])
    """
    if is_torch(values):
        return values.gather(1, labels[:, None])[:, 0]
    xp = namespace(values)
    return values[xp.arange(values.shape[0]), labels]
