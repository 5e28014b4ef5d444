"""The methods by name, such as ``dac+ets``, and the chain that applies several of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Self, cast

from sklearn.base import clone

from densecal.arrays import Array
from densecal.arrays.checks import check_choice
from densecal.calibrators import DAC_NAME, ORACLE, SHIFT_FITTED, UNCALIBRATED
from densecal.calibrators.base import Calibrator, Samples
from densecal.calibrators.dac import DAC
from densecal.calibrators.intra_order import IntraOrderPreserving
from densecal.calibrators.isotonic import MulticlassIsotonic, OneVsRestIsotonic
from densecal.calibrators.matrix_scaling import MatrixScaling
from densecal.calibrators.one_vs_rest import BetaCalibration, PlattScaling
from densecal.calibrators.parameterized_temperature import ParameterizedTemperatureScaling
from densecal.calibrators.spline import SplineCalibration
from densecal.calibrators.temperature import EnsembleTemperatureScaling, Loss, TemperatureScaling
from densecal.calibrators.vector_scaling import VectorScaling
from densecal.density.bank import FeatureBank

if TYPE_CHECKING:
    from densecal.calibrators.dac.shift_fit import Shifted

METHODS: Mapping[str, type[Calibrator]] = {
    method.short_name: method
    for method in (
        DAC,
        TemperatureScaling,
        EnsembleTemperatureScaling,
        MulticlassIsotonic,
        OneVsRestIsotonic,
        SplineCalibration,
        ParameterizedTemperatureScaling,
        MatrixScaling,
        VectorScaling,
        IntraOrderPreserving,
        PlattScaling,
        BetaCalibration,
    )
}
"""The calibrator class of each short name."""
_WRITTEN = {name: name.upper() for name in METHODS} | {
    "platt": "Platt",
    "beta": "Beta",
    SHIFT_FITTED: "DAC (shift fit)",
}


def make_calibrator(name: str, *, bank: FeatureBank | None = None, loss: Loss | None = None) -> Calibrator:
    """Make a calibrator from its short name, or a chain from short names joined by +.

    Parameters
    ----------
    name : str
        One of ``ts ets irm ir spl pts dir vs dia platt beta``, ``dac``, or ``dac+`` one of them. ``dac-shift`` is a DAC
        that must be fitted with shifted data.
    bank : FeatureBank, optional
        The bank for DAC. Without it, pass ``distances=`` to ``fit`` and ``predict_proba``.
    loss : {"nll", "brier"}, optional
        The loss of the stages that can minimise either: ``dac`` (by default the squared error, as in its paper), ``ts``
        and ``ets`` (by default the negative log-likelihood).

    Examples
    --------
    >>> make_calibrator("ts")
    TemperatureScaling()
    >>> make_calibrator("dac+spl").short_name
    'dac+spl'
    """
    if not isinstance(name, str):
        raise TypeError(f"A method is named by a string such as 'dac+ets', got {type(name).__name__}.")
    calibrator = join_stages([_make_stage(part, bank) for part in parse_method(name)])
    if loss is None:
        return calibrator
    check_choice("loss", loss, Loss)
    with_loss = [stage for stage in calibrator.stages if "loss" in stage.get_params(deep=False)]
    if not with_loss:
        raise ValueError(
            f"{calibrator.short_name!r} has no choice of loss, so loss={loss!r} cannot be set. Only dac, ts and ets do."
        )
    for stage in with_loss:
        stage.set_params(loss=loss)
    return calibrator


def join_stages(stages: list[Calibrator]) -> Calibrator:
    """Return a single stage itself, and several as a chain."""
    return stages[0] if len(stages) == 1 else Chain(*stages)


def _make_stage(name: str, bank: FeatureBank | None) -> Calibrator:
    if name in (DAC_NAME, SHIFT_FITTED):
        return DAC(bank=bank, require_shifted=name == SHIFT_FITTED)
    if name not in METHODS:
        close = get_close_matches(name, METHODS, n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise ValueError(
            f"Unknown calibration method {name!r}.{hint} The methods are {', '.join(METHODS)}. Join them with +, as in "
            "'dac+ets'."
        )
    return METHODS[name]()


def parse_method(method: str) -> tuple[str, ...]:
    """Return the names of the stages, in order."""
    return tuple(part.strip() for part in method.lower().split("+"))


def base_method(method: str) -> str:
    """Return the method without DAC: ``ets`` for ``dac+ets``, ``uncalibrated`` for ``dac``."""
    return "+".join(part for part in method.split("+") if part not in (DAC_NAME, SHIFT_FITTED)) or UNCALIBRATED


def has_dac(method: str) -> bool:
    """Return whether DAC is one of the stages."""
    return any(part in (DAC_NAME, SHIFT_FITTED) for part in parse_method(method))


def is_shift_fitted(method: str) -> bool:
    """Return whether DAC was fitted with shifted data, according to the name."""
    return SHIFT_FITTED in parse_method(method)


def clean_fitted(method: str) -> str:
    """Return the name of the same method with DAC fitted on clean data only, as in the paper."""
    return "+".join(DAC_NAME if part == SHIFT_FITTED else part for part in method.split("+"))


def method_label(method: str) -> str:
    """Return the name as written in papers: ``DAC + IRM``, ``DAC (shift fit) + TS``. Unknown names do not change."""
    if method in (UNCALIBRATED, ORACLE):
        return method.capitalize()
    return " + ".join(_WRITTEN.get(part, part) for part in method.split("+"))


class Chain(Calibrator):
    """Apply calibrators in sequence: p = h(g(z)).

    Each stage except the last passes on logits: DAC its rescaled logits, any other method the logarithm of its
    probabilities. The last stage returns the probabilities and the confidence.

    Parameters
    ----------
    *stages : Calibrator
        At least one, in the order in which they are applied. DAC must be first, because it needs the classifier's own
        logits. The stages of a chain among them are inserted one by one.

    Examples
    --------
    >>> import densecal
    >>> chain = densecal.Chain(densecal.DAC(), densecal.EnsembleTemperatureScaling())
    >>> chain.short_name, chain.accuracy_preserving
    ('dac+ets', True)
    """

    def __init__(self, *stages: Calibrator) -> None:
        self._stages = _check_stages(stages)

    @property
    def stages(self) -> tuple[Calibrator, ...]:
        """The stages, in the order in which they are applied."""
        return self._stages

    @property
    def n_classes_(self) -> int:  # type: ignore[override]
        """The number of classes that the chain was fitted on."""
        return self.stages[-1].n_classes_

    @property
    def short_name(self) -> str:  # type: ignore[override]
        """The short names of the stages, joined by +."""
        return "+".join(stage.short_name for stage in self.stages)

    @property
    def method_name(self) -> str:
        """The method names of the stages, joined by +."""
        return "+".join(stage.method_name for stage in self.stages)

    @property
    def full_name(self) -> str:  # type: ignore[override]
        """The names of the stages, in order."""
        return ", then ".join(stage.full_name for stage in self.stages)

    @property
    def accuracy_preserving(self) -> bool:  # type: ignore[override]
        """Whether no stage can change the predicted class."""
        return all(stage.accuracy_preserving for stage in self.stages)

    def get_params(self, deep: bool = True) -> dict[str, object]:
        """Return the stages by name and, if ``deep``, their parameters, such as ``dac__loss``.

        A method that occurs twice is numbered: ``ts``, ``ts2``.
        """
        named = self._named_stages()
        params: dict[str, object] = dict(named)
        if deep:
            for name, stage in named.items():
                params |= {f"{name}__{key}": value for key, value in stage.get_params().items()}
        return params

    def set_params(self, **params: object) -> Self:
        """Set stages or their parameters, named as in ``get_params``."""
        named = self._named_stages()
        unknown = [key for key in params if key.partition("__")[0] not in named]
        if unknown:
            raise ValueError(f"{unknown[0]!r} is not a parameter of this chain. Its stages are {list(named)}.")
        self._stages = _check_stages([cast(Calibrator, params.get(name, stage)) for name, stage in named.items()])
        named = dict(zip(named, self._stages, strict=True))
        for key, value in params.items():
            name, _, parameter = key.partition("__")
            if parameter:
                named[name].set_params(**{parameter: value})
        return self

    def __sklearn_clone__(self) -> Chain:
        return Chain(*(clone(stage) for stage in self.stages))

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        return f"Chain({', '.join(repr(stage) for stage in self.stages)})"

    def _named_stages(self) -> dict[str, Calibrator]:
        named: dict[str, Calibrator] = {}
        for stage in self.stages:
            seen = sum(other.short_name == stage.short_name for other in named.values())
            named[stage.short_name + (str(seen + 1) if seen else "")] = stage
        return named

    def _learn(self, samples: Samples, shifted: Shifted | None) -> None:
        for stage in self.stages[:-1]:
            stage._learn(samples, shifted)
            samples = samples._replace(logits=stage._hand_on(samples))
        self.stages[-1]._learn(samples, shifted)

    def _apply(self, samples: Samples) -> Array:
        return self.stages[-1]._answer(self._before_last(samples))

    def _confidence(self, samples: Samples) -> Array:
        return self.stages[-1]._confidence(self._before_last(samples))

    def _before_last(self, samples: Samples) -> Samples:
        for stage in self.stages[:-1]:
            samples = samples._replace(logits=stage._hand_on(samples))
        return samples


def _check_stages(stages: Sequence[Calibrator]) -> tuple[Calibrator, ...]:
    """Return the stages, with chains replaced by their stages; raise unless a DAC comes first."""
    if not stages:
        raise ValueError("Chain needs at least one calibrator, got none.")
    for stage in stages:
        if not isinstance(stage, Calibrator):
            raise TypeError(f"Chain stages must be calibrators, got {type(stage).__name__}: {stage!r}.")
    flat = tuple(part for stage in stages for part in stage.stages)
    if any(stage.measures_distances for stage in flat[1:]):
        names = "+".join(stage.short_name for stage in flat)
        raise ValueError(f"DAC must be the first stage, and the only DAC of a chain, got {names!r}.")
    return flat
