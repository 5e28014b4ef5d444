"""Chain: DAC first, then any other method on the rescaled logits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from sklearn.base import clone

from densecal.arrays import Array, as_array, namespace
from densecal.calibrators.base import Calibrator
from densecal.calibrators.dac import DAC
from densecal.calibrators.solvers.top_class import keep_top_class


class Chain(Calibrator):
    """Apply calibrators one after the other: p = h(g(z)).

    Each stage but the last hands on logits: DAC its rescaled logits, any other method the logarithm of its
    probabilities. The last stage gives the probabilities and the confidence.

    Parameters
    ----------
    *stages : Calibrator
        At least one, in the order in which they are applied.

    Examples
    --------
    >>> import densecal
    >>> chain = densecal.Chain(densecal.DAC(), densecal.EnsembleTemperatureScaling())
    >>> chain.short_name, chain.accuracy_preserving
    ('dac+ets', True)
    """

    def __init__(self, *stages: Calibrator) -> None:
        if not stages:
            raise ValueError("Chain needs at least one calibrator, got none.")
        for stage in stages:
            if not isinstance(stage, Calibrator):
                raise TypeError(f"Chain joins calibrators, got {type(stage).__name__}: {stage!r}.")
        self.stages = stages

    @property
    def short_name(self) -> str:  # type: ignore[override]
        """The stages' short names joined by +."""
        return "+".join(stage.short_name for stage in self.stages)

    @property
    def full_name(self) -> str:  # type: ignore[override]
        """The stages' names, in order."""
        return ", then ".join(stage.full_name for stage in self.stages)

    @property
    def accuracy_preserving(self) -> bool:  # type: ignore[override]
        """Whether no stage can change the predicted class."""
        return all(stage.accuracy_preserving for stage in self.stages)

    def fit(
        self,
        logits: Array,
        labels: Array,
        *,
        features: Mapping[str, Array] | None = None,
        distances: Array | None = None,
        shifted: Any = None,
    ) -> Self:
        """Fit the first stage, then each next one on what the one before hands on.

        ``shifted=`` goes to DAC, which must be one of the stages; the others are fitted on the validation set alone.
        """
        if shifted is not None and not any(isinstance(stage, DAC) for stage in self.stages):
            raise ValueError(f"shifted= data serve DAC, and {self.short_name!r} has no such stage; leave them out.")
        for number, stage in enumerate(self.stages):
            moved = {"shifted": shifted} if isinstance(stage, DAC) else {}
            stage.fit(logits, labels, features=features, distances=distances, **moved)
            if number < len(self.stages) - 1:
                logits = _handed_on(stage, logits, features, distances)
        self.n_classes_ = self.stages[-1].n_classes_
        return self

    def predict_proba(
        self, logits: Array, *, features: Mapping[str, Array] | None = None, distances: Array | None = None
    ) -> Array:
        """Return the last stage's probabilities."""
        handed_on = self._before_last(logits, features, distances)
        probabilities = self.stages[-1].predict_proba(handed_on, features=features, distances=distances)
        return keep_top_class(probabilities, as_array(logits)) if self.accuracy_preserving else probabilities

    def confidence(
        self, logits: Array, *, features: Mapping[str, Array] | None = None, distances: Array | None = None
    ) -> Array:
        """Return the last stage's top-1 confidence."""
        logits = self._before_last(logits, features, distances)
        return self.stages[-1].confidence(logits, features=features, distances=distances)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the stages by their short names and, if ``deep``, their parameters as ``dac__loss``."""
        params: dict[str, Any] = {stage.short_name: stage for stage in self.stages}
        if deep:
            for stage in self.stages:
                params |= {f"{stage.short_name}__{key}": value for key, value in stage.get_params().items()}
        return params

    def set_params(self, **params: Any) -> Self:
        """Set parameters of the stages, named as in ``get_params``."""
        by_name = {stage.short_name: stage for stage in self.stages}
        for key, value in params.items():
            name, _, parameter = key.partition("__")
            if name not in by_name:
                raise ValueError(f"{key!r} names no stage of this chain; its stages are {list(by_name)}.")
            if parameter:
                by_name[name].set_params(**{parameter: value})
            else:
                by_name[name] = value
        self.stages = tuple(by_name.values())
        return self

    def __sklearn_clone__(self) -> Chain:
        return Chain(*(clone(stage) for stage in self.stages))

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        return f"Chain({', '.join(repr(stage) for stage in self.stages)})"

    def _before_last(self, logits: Array, features: Mapping[str, Array] | None, distances: Array | None) -> Array:
        for stage in self.stages[:-1]:
            logits = _handed_on(stage, logits, features, distances)
        return logits

    def _fit(self, logits: Array, labels: Array) -> None:
        raise NotImplementedError("Chain.fit hands the work to its stages.")

    def _probabilities(self, logits: Array) -> Array:
        raise NotImplementedError("Chain.predict_proba hands the work to its stages.")


def _handed_on(
    stage: Calibrator, logits: Array, features: Mapping[str, Array] | None, distances: Array | None
) -> Array:
    if hasattr(stage, "transform"):
        return stage.transform(logits, features=features, distances=distances)
    probabilities = stage.predict_proba(logits, features=features, distances=distances)
    xp = namespace(probabilities)
    return xp.log(xp.clip(probabilities, xp.finfo(probabilities.dtype).smallest_normal, None))
