"""Calibrator: the base class of all methods, which checks inputs, fits and predicts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self, TypeAlias, cast

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from densecal.arrays import (
    Array,
    ArrayLike,
    ArrayOrTensor,
    by_row_blocks,
    data_hash,
    join_blocks,
    keep_top_class,
    logit_blocks,
    namespace,
    softmax,
    take_classes,
)
from densecal.arrays.checks import check_labels, check_logits, check_weights
from densecal.calibrators.citation import Citation
from densecal.calibrators.state import HasState
from densecal.calibrators.unlabelled import EstimatesAccuracy
from densecal.errors import warn_user
from densecal.metrics.proper_scores import LIKELIHOOD_FLOOR
from densecal.outputs import Distances, Outputs

if TYPE_CHECKING:
    from densecal.calibrators.dac import DAC
    from densecal.calibrators.dac.shift_fit import Shifted

Features: TypeAlias = Mapping[str, ArrayLike]


class Samples(NamedTuple):
    """The validated inputs of a calibrator for one data set."""

    logits: Array
    labels: Array | None
    features: Features | None
    distances: Array | Distances | None
    weights: Array | None = None

    @classmethod
    def of(
        cls,
        logits: ArrayLike | Outputs,
        labels: ArrayLike | None,
        features: Features | None,
        distances: ArrayLike | Distances | None,
        name: str = "logits",
    ) -> Samples:
        """Return the samples of one data set, given as Outputs or as its parts. Errors call the logits ``name``."""
        if not isinstance(logits, Outputs):
            return cls(check_logits(logits, name), labels, features, distances)
        if labels is not None or features is not None or distances is not None:
            raise TypeError("Outputs include labels, features and distances. Do not pass them separately.")
        return cls(logits.checked_logits(name), logits.labels, logits.features or None, logits.distances)


class Calibrator(EstimatesAccuracy, HasState, BaseEstimator):  # type: ignore[misc]
    """A map from a classifier's logits to calibrated probabilities, learned on a validation set.

    A method is a subclass. It sets the class attributes, learns the attributes named in ``learned`` in ``_fit``
    (arrays, numbers, strings, lists or dicts, which form its state), and applies them in ``_probabilities``.

    Examples
    --------
    >>> class Halved(Calibrator):
    ...     short_name, full_name, accuracy_preserving = "half", "Halved logits", True
    ...     learned = ("factor_",)
    ...
    ...     def _fit(self, logits, labels):
    ...         self.factor_ = 0.5
    ...
    ...     def _probabilities(self, logits):
    ...         return softmax(self.factor_ * logits)
    >>> logits = [[4.0, 0.0]] * 4
    >>> Halved().fit(logits, [0, 0, 0, 1]).confidence(logits[:1]).round(2)
    array([0.88])
    """

    short_name: ClassVar[str]
    full_name: ClassVar[str]
    accuracy_preserving: ClassVar[bool]
    citation: ClassVar[Citation]
    learned: ClassVar[tuple[str, ...]] = ()
    """The attributes that ``fit`` sets in addition to ``n_classes_`` and ``is_identity_``."""
    fit_loss: ClassVar[str] = "brier"
    """The loss that must not be higher after the fit than for the uncalibrated logits: ``"brier"`` or ``"nll"``."""
    weighted: ClassVar[bool] = False
    """Whether ``_fit`` takes the samples' weights as a third argument."""
    measures_distances: ClassVar[bool] = False

    n_classes_: int
    is_identity_: bool
    data_hashes_: dict[str, str]

    @property
    def stages(self) -> tuple[Calibrator, ...]:
        """The methods in the order in which they are applied. A single method has one stage, itself."""
        return (self,)

    @property
    def density_stage(self) -> DAC | None:
        """The stage that measures distances from the training data, or None."""
        return next((stage for stage in self.stages if stage.measures_distances), None)

    @property
    def method_name(self) -> str:
        """The short name, with ``dac-shift`` for a DAC that was fitted with shifted data."""
        return self.short_name

    def fit(
        self,
        logits: ArrayLike | Outputs,
        labels: ArrayLike | None = None,
        *,
        features: Features | None = None,
        distances: ArrayLike | Distances | None = None,
        shifted: Shifted | None = None,
        sample_weight: ArrayLike | None = None,
    ) -> Self:
        """Fit the calibrator on a validation set that the classifier was not trained on.

        Parameters
        ----------
        logits : array of shape (n_samples, n_classes), or Outputs
            Scores before the softmax. Outputs also provide the labels, features and distances.
        labels : array of shape (n_samples,) or one-hot
            The true classes.
        features, distances : optional
            Used by density-aware methods and ignored by others.
        shifted : Outputs or (logits, labels, distances), or a sequence or mapping of them, optional
            Labelled data that differ from the training data, such as perturbed copies of the validation inputs. ``dac``
            learns from them how the temperature grows under shift, and how to estimate the accuracy on unlabelled data.
            A mapping names the domains; the part of ``"blur/weak"`` before / is the kind of shift.
        sample_weight : array of shape (n_samples,), optional
            For ``platt``, ``beta`` and ``dir``: how often each sample counts. If the mean of the positive weights is
            below one, they are scaled to a mean of one.
        """
        samples = Samples.of(logits, labels, features, distances)
        if samples.labels is None:
            raise ValueError("fit needs labels: pass fit(logits, labels) or Outputs that have them.")
        if shifted is not None and self.density_stage is None:
            raise ValueError(
                f"{self.short_name!r} is not fitted on shifted data, only 'dac' is. Omit shifted=, or use "
                f"'dac+{self.short_name}'."
            )
        if sample_weight is not None and not all(stage.weighted for stage in self.stages):
            raise ValueError(f"{self.short_name!r} takes no sample_weight: omit it, or use 'platt', 'beta' or 'dir'.")
        n_samples, n_classes = samples.logits.shape
        checked = check_labels(samples.labels, n_samples, n_classes, like=samples.logits)
        weights = None if sample_weight is None else check_weights(sample_weight, n_samples)
        samples = self._measured(samples._replace(labels=checked, weights=weights))
        self._learn(samples, shifted)
        self.data_hashes_ = {"validation": data_hash([(samples.logits, samples.labels)])}
        if shifted is not None:
            from densecal.calibrators.dac.shift_fit import shifted_pairs

            self.data_hashes_["shifted"] = data_hash(shifted_pairs(shifted))
        return self

    def predict_proba(
        self,
        logits: ArrayLike | Outputs,
        *,
        features: Features | None = None,
        distances: ArrayLike | Distances | None = None,
    ) -> ArrayOrTensor:
        """Return calibrated probabilities of shape (n_samples, n_classes), in the logits' library, dtype and device."""
        return _by_blocks(self._answer, self._fitted_samples(logits, features, distances))

    def confidence(
        self,
        logits: ArrayLike | Outputs,
        *,
        features: Features | None = None,
        distances: ArrayLike | Distances | None = None,
    ) -> ArrayOrTensor:
        """Return the calibrated top-1 confidence of each sample, of shape (n_samples,)."""
        return _by_blocks(self._confidence, self._fitted_samples(logits, features, distances))

    def measure(self, outputs: Outputs) -> Outputs:
        """Return the outputs with their distances from the training data, to share one search between several calls.

        Outputs that this calibrator's bank already measured are returned unchanged, and so are those of a method that
        does not use distances.
        """
        stage, known = self.density_stage, outputs.distances
        if stage is None or stage.bank is None or (known is not None and stage.accepts(known)):
            return outputs
        return outputs.with_distances(stage.measure_features(outputs.features, outputs.logits))

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self.stages[-1], "n_classes_")

    def _fit(self, logits: Array, labels: Array) -> None:
        """Set the learned attributes from validated logits and integer labels, and weights if ``weighted``."""
        raise NotImplementedError

    def _probabilities(self, logits: Array) -> Array:
        """Return the calibrated probabilities of a block of validated logits."""
        raise NotImplementedError

    # Methods that need more than the logits override the following instead of _fit and _probabilities.

    def _learn(self, samples: Samples, shifted: Shifted | None) -> None:
        self.n_classes_ = int(samples.logits.shape[1])
        self.is_identity_ = False
        weights = () if samples.weights is None else (samples.weights,)
        self._fit(samples.logits, samples.labels, *weights)
        if not weights:  # the losses that this compares are unweighted
            self._keep_the_better(samples.logits, samples.labels)

    def _apply(self, samples: Samples) -> Array:
        return by_row_blocks(softmax if self.is_identity_ else self._probabilities, samples.logits)

    def _confidence(self, samples: Samples) -> Array:
        probabilities = self._answer(samples)
        return namespace(probabilities).max(probabilities, axis=1)

    def _hand_on(self, samples: Samples) -> Array:
        """Return the logits for the next stage of a chain."""
        probabilities = self._answer(samples)
        xp = namespace(probabilities)
        return xp.log(xp.clip(probabilities, xp.finfo(probabilities.dtype).smallest_normal, None))

    def _answer(self, samples: Samples) -> Array:
        probabilities = self._apply(samples)
        return keep_top_class(probabilities, samples.logits) if self.accuracy_preserving else probabilities

    def _fitted_samples(
        self, logits: ArrayLike | Outputs, features: Features | None, distances: Array | Distances | None
    ) -> Samples:
        check_is_fitted(self)
        samples = Samples.of(logits, None, features, distances)
        expected = self.stages[-1].n_classes_
        if (found := samples.logits.shape[1]) != expected:
            method = type(self).__name__
            raise ValueError(f"logits have {found} classes, but this {method} was fitted on {expected} classes.")
        return self._measured(samples)

    def _measured(self, samples: Samples) -> Samples:
        """Return the samples with checked distances, which all stages share; without any if no stage uses them."""
        stage = self.density_stage
        return samples._replace(distances=None if stage is None else stage.read_distances(samples))

    def _fit_score(self, logits: Array, labels: Array) -> tuple[float, float]:
        """Return the validation loss of the calibrated and of the uncalibrated probabilities."""
        calibrated = _mean_loss(by_row_blocks(self._probabilities, logits), labels, self.fit_loss)
        return calibrated, _mean_loss(softmax(logits), labels, self.fit_loss)

    def _keep_the_better(self, logits: Array, labels: Array) -> None:
        calibrated, uncalibrated = self._fit_score(logits, labels)
        # The tolerance allows for rounding errors of float32 sums.
        if calibrated <= uncalibrated * (1 + 1e-6) + 1e-9:
            return
        self.is_identity_ = True
        warn_user(
            f"{type(self).__name__} has a higher {self.fit_loss} loss on the validation set than the uncalibrated "
            f"logits ({calibrated:.6g} > {uncalibrated:.6g}), so it returns the uncalibrated probabilities. The "
            f"validation set has {logits.shape[0]} samples. Use a larger one."
        )


def _by_blocks(apply: Callable[[Samples], Array], samples: Samples) -> ArrayOrTensor:
    """Apply a row-wise map to blocks of samples, so that temporary arrays take little memory."""
    logits, distances = samples.logits, samples.distances

    def part(rows: slice) -> Array:
        return apply(samples._replace(logits=logits[rows], distances=None if distances is None else distances[rows]))

    with np.errstate(over="ignore"):  # the logits of masked classes may overflow to minus infinity
        return cast(ArrayOrTensor, join_blocks(part, list(logit_blocks(logits))))


def _mean_loss(probabilities: Array, labels: Array, loss: str) -> float:
    """Return the mean squared error summed over classes, or the mean negative log-likelihood."""
    xp = namespace(probabilities)
    true_class = take_classes(probabilities, labels)
    if loss == "nll":
        return float(xp.mean(-xp.log(xp.clip(true_class, LIKELIHOOD_FLOOR, None))))
    return float(xp.mean(xp.sum(probabilities**2, axis=1) - 2 * true_class + 1))
