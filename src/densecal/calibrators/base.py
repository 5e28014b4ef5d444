"""Calibrator: the contract that every method keeps, from the check at the door to the state on disk."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeAlias

from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from densecal.arrays import Array, ArrayLike, ArrayOrTensor, keep_top_class, namespace, softmax
from densecal.arrays.checks import check_labels, check_logits
from densecal.calibrators.citation import Citation
from densecal.calibrators.names import DAC as DAC_NAME
from densecal.calibrators.names import SHIFT_FITTED, join_names
from densecal.calibrators.solvers.tempering import mean_loss
from densecal.errors import CalibrationWarning
from densecal.io import artefacts
from densecal.io.artefacts import CalibratorState, StageState
from densecal.outputs import Distances, Outputs

if TYPE_CHECKING:
    from densecal.calibrators.dac import DAC
    from densecal.calibrators.dac.shift_fit import Shifted

Features: TypeAlias = Mapping[str, ArrayLike]


class Samples(NamedTuple):
    """What a calibrator is given about one data set, checked at the door."""

    logits: Array
    labels: Array | None
    features: Features | None
    distances: Array | Distances | None


class Calibrator(BaseEstimator):  # type: ignore[misc]
    """A map from a classifier's logits to calibrated probabilities, learned on a validation set.

    A method is one subclass in one file. It sets the class attributes, learns in ``_fit`` the attributes that
    ``learned`` names (arrays, numbers, strings, lists or dicts: they are its state), and applies them in
    ``_probabilities``.

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
    >>> import numpy as np
    >>> logits = np.array([[4.0, 0.0]] * 4)
    >>> Halved().fit(logits, [0, 0, 0, 1]).confidence(logits[:1]).round(2)
    array([0.88])
    """

    short_name: ClassVar[str]
    full_name: ClassVar[str]
    accuracy_preserving: ClassVar[bool]
    citation: ClassVar[Citation]
    learned: ClassVar[tuple[str, ...]] = ()
    """The attributes that ``fit`` learns, beside ``n_classes_`` and ``is_identity_``."""
    fit_loss: ClassVar[str] = "brier"
    """The loss that a fit must not make worse than the uncalibrated logits': ``"brier"`` or ``"nll"``."""
    measures_distances: ClassVar[bool] = False

    n_classes_: int
    is_identity_: bool

    @property
    def stages(self) -> tuple[Calibrator, ...]:
        """The methods that are applied one after the other; a single method is a chain of one."""
        return (self,)

    @property
    def density_stage(self) -> DAC | None:
        """The stage that measures distances from the training data, if there is one."""
        return next((stage for stage in self.stages if stage.measures_distances), None)

    @property
    def method_name(self) -> str:
        """The short name, in which ``dac-shift`` stands for a DAC that was fitted with shifted data."""
        shifted = self.density_stage is not None and self.density_stage.shift_fitted
        names = [stage.short_name for stage in self.stages]
        return join_names(SHIFT_FITTED if shifted and name == DAC_NAME else name for name in names)

    def fit(
        self,
        logits: ArrayLike | Outputs,
        labels: ArrayLike | None = None,
        *,
        features: Features | None = None,
        distances: ArrayLike | Distances | None = None,
        shifted: Shifted | None = None,
    ) -> Self:
        """Learn the map on a validation set that the classifier was not trained on.

        Parameters
        ----------
        logits : array of shape (n_samples, n_classes), or Outputs
            Scores before the softmax; Outputs bring their labels, features and distances along.
        labels : array of shape (n_samples,) or one-hot
            The true classes.
        features, distances : optional
            Used by density-aware methods; the others ignore them, so that one call serves all.
        shifted : Outputs or (logits, labels, distances), or a sequence of them, optional
            Labelled data that differ from the training data, such as perturbed copies of the validation inputs. Used
            by ``dac``, which learns from them how the temperature grows under shift.
        """
        samples = self._samples(logits, labels, features, distances)
        if samples.labels is None:
            raise ValueError("fit needs labels: pass fit(logits, labels) or Outputs that have them.")
        if shifted is not None and self.density_stage is None:
            raise ValueError(
                f"{self.short_name!r} is not fitted on shifted data; only 'dac' is. Leave out shifted=, or put dac "
                f"first: 'dac+{self.short_name}'."
            )
        n_samples, n_classes = samples.logits.shape
        checked = check_labels(samples.labels, n_samples, n_classes, like=samples.logits)
        self._learn(self._measured(samples._replace(labels=checked)), shifted)
        return self

    def predict_proba(
        self,
        logits: ArrayLike | Outputs,
        *,
        features: Features | None = None,
        distances: ArrayLike | Distances | None = None,
    ) -> ArrayOrTensor:
        """Return calibrated probabilities of shape (n_samples, n_classes), of the logits' library, type and device."""
        probabilities: ArrayOrTensor = self._answer(self._fitted_samples(logits, features, distances))
        return probabilities

    def confidence(
        self,
        logits: ArrayLike | Outputs,
        *,
        features: Features | None = None,
        distances: ArrayLike | Distances | None = None,
    ) -> ArrayOrTensor:
        """Return each sample's calibrated top-1 confidence, of shape (n_samples,)."""
        confidence: ArrayOrTensor = self._confidence(self._fitted_samples(logits, features, distances))
        return confidence

    def measure(self, outputs: Outputs) -> Outputs:
        """Return the outputs with their distances from the training data, so that several calls share one search.

        Outputs that were measured by this calibrator's bank already, or a method that measures none, give the outputs
        back.
        """
        stage = self.density_stage
        if stage is None or stage.bank is None:
            return outputs
        if outputs.distances is not None and stage.accepts(outputs.distances):
            return outputs
        return outputs.with_distances(stage.measure_features(outputs.features))

    def state(self) -> CalibratorState:
        """Return all that was learned, as plain data; files, torch modules and reports are made from it."""
        check_is_fitted(self)
        bank = self.density_stage.bank if self.density_stage is not None else None
        return CalibratorState(
            tuple(stage._stage_state() for stage in self.stages), None if bank is None else bank.state()
        )

    @classmethod
    def from_state(cls, state: CalibratorState) -> Calibrator:
        """Return the calibrator that a state describes; called on a class of your own, it knows that method too."""
        from densecal.calibrators.registry import METHODS, from_state

        own = getattr(cls, "short_name", None)
        return from_state(state, {**METHODS, own: cls} if isinstance(own, str) else METHODS)

    def save(
        self, path: str | Path, *, half_precision_bank: bool = False, metadata: Mapping[str, Any] | None = None
    ) -> None:
        """Write the calibrator to one file, safetensors with a JSON header; ``densecal.load`` reads it.

        Parameters
        ----------
        path : str or Path
        half_precision_bank : bool, default False
            Write the bank in float16: half the size, distances right to about 1e-3.
        metadata : mapping, optional
            JSON values kept in the file, such as where the validation data come from.
        """
        artefacts.write(path, self.state(), half_precision_bank=half_precision_bank, metadata=metadata)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self.stages[-1], "n_classes_")

    def _fit(self, logits: Array, labels: Array) -> None:
        """Learn from checked logits and integer labels."""
        raise NotImplementedError

    def _probabilities(self, logits: Array) -> Array:
        """Apply what was learned to checked logits."""
        raise NotImplementedError

    # A method that needs more than the logits overrides the following instead of _fit and _probabilities.

    def _learn(self, samples: Samples, shifted: Shifted | None) -> None:
        self.n_classes_ = int(samples.logits.shape[1])
        self.is_identity_ = False
        self._fit(samples.logits, samples.labels)
        self._keep_the_better(samples.logits, samples.labels)

    def _apply(self, samples: Samples) -> Array:
        return softmax(samples.logits) if self.is_identity_ else self._probabilities(samples.logits)

    def _confidence(self, samples: Samples) -> Array:
        probabilities = self._answer(samples)
        return namespace(probabilities).max(probabilities, axis=1)

    def _hand_on(self, samples: Samples) -> Array:
        """Return the logits that the next stage of a chain is given."""
        probabilities = self._answer(samples)
        xp = namespace(probabilities)
        return xp.log(xp.clip(probabilities, xp.finfo(probabilities.dtype).smallest_normal, None))

    def _answer(self, samples: Samples) -> Array:
        probabilities = self._apply(samples)
        return keep_top_class(probabilities, samples.logits) if self.accuracy_preserving else probabilities

    def _samples(
        self,
        logits: ArrayLike | Outputs,
        labels: ArrayLike | None,
        features: Features | None,
        distances: ArrayLike | Distances | None,
    ) -> Samples:
        if isinstance(logits, Outputs):
            if labels is not None or features is not None or distances is not None:
                raise TypeError("Outputs bring their labels, features and distances along: pass nothing beside them.")
            outputs = logits
            return Samples(check_logits(outputs.logits), outputs.labels, outputs.features or None, outputs.distances)
        return Samples(check_logits(logits), labels, features, distances)

    def _fitted_samples(
        self, logits: ArrayLike | Outputs, features: Features | None, distances: Array | Distances | None
    ) -> Samples:
        check_is_fitted(self)
        samples = self._samples(logits, None, features, distances)
        expected = self.stages[-1].n_classes_
        if samples.logits.shape[1] != expected:
            raise ValueError(
                f"logits have {samples.logits.shape[1]} classes, but this {type(self).__name__} was fitted on "
                f"{expected}."
            )
        return self._measured(samples)

    def _measured(self, samples: Samples) -> Samples:
        """Search for the neighbours once, for all stages."""
        stage = self.density_stage
        if stage is None or stage.bank is None or samples.features is None or samples.distances is not None:
            return samples
        return samples._replace(distances=stage.measure_features(samples.features))

    def _stage_state(self) -> StageState:
        names = ("n_classes_", "is_identity_", *self.learned)
        params = {name: value for name, value in self.get_params(deep=False).items() if name != "bank"}
        return StageState(self.short_name, params, {name: getattr(self, name) for name in names})

    def _fit_score(self, logits: Array, labels: Array) -> tuple[float, float]:
        """Return the validation loss of the calibrated and of the uncalibrated probabilities."""
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
            f"{type(self).__name__} has a higher {self.fit_loss} loss on the validation set than the uncalibrated "
            f"logits ({calibrated:.6g} against {uncalibrated:.6g}), so it returns those unchanged. The validation set "
            f"has {logits.shape[0]} samples: a larger one usually helps.",
            CalibrationWarning,
            stacklevel=4,
        )
