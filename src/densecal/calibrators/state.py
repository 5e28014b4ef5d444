"""The state of fitted calibrators: saved, loaded, or as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from sklearn.utils.validation import check_is_fitted

from densecal.arrays.checks import check_probabilities
from densecal.density.bank import FeatureBank
from densecal.display import counted, percent
from densecal.errors import ArtefactError
from densecal.io import artefacts
from densecal.io.artefacts import CalibratorState, StageState

if TYPE_CHECKING:
    from densecal.calibrators.base import Calibrator

NOT_SHOWN = (
    "n_classes",
    "is_identity",
    "converged",
    "n_iterations",
    "weights",
    "plain_temperature",
    "uncalibrated_loss",
    "excess_spread",
)
MOST_CLASSES = 1 << 22
"""A file with more classes is rejected: testing the restored calibrator would need too much memory."""


class HasState:
    """The methods of a calibrator that save it."""

    def state(self) -> CalibratorState:
        """Return the learned state as plain data, from which files, torch modules and reports are made."""
        calibrator = cast("Calibrator", self)
        check_is_fitted(calibrator)
        dac = calibrator.density_stage
        stages = tuple(_stage_state(stage) for stage in calibrator.stages)
        bank = None if dac is None or dac.bank is None else dac.bank.state()
        return CalibratorState(stages, bank, getattr(calibrator, "data_hashes_", {}))

    @classmethod
    def from_state(cls, state: CalibratorState) -> Calibrator:
        """Restore a calibrator from its state; called on a user-defined class, also of that method."""
        own = getattr(cls, "short_name", None)
        return from_state(state, {own: cast("type[Calibrator]", cls)} if isinstance(own, str) else {})

    def save(
        self, path: str | Path, *, half_precision_bank: bool = False, metadata: Mapping[str, object] | None = None
    ) -> None:
        """Write the calibrator to one safetensors file, which ``densecal.load`` reads.

        Parameters
        ----------
        path : str or Path
        half_precision_bank : bool, default False
            Write the bank in float16. This halves the size; distances are then accurate to about 1e-3.
        metadata : mapping, optional
            JSON values to save in the file, such as the origin of the validation data.
        """
        artefacts.write(path, self.state(), half_precision_bank=half_precision_bank, metadata=metadata)


def from_state(state: CalibratorState, own_methods: Mapping[str, type[Calibrator]] | None = None) -> Calibrator:
    """Restore a calibrator from its state."""
    from densecal.calibrators.registry import METHODS, join_stages

    bank = None if state.bank is None else FeatureBank.from_state(state.bank)
    methods = {**METHODS, **(own_methods or {})}
    calibrator = join_stages([_restore_stage(stage, bank, methods) for stage in state.stages])
    calibrator.data_hashes_ = dict(state.data_hashes)
    return calibrator


def load(path: str | Path) -> Calibrator:
    """Read a calibrator written by ``save``. Loading never executes code from the file.

    Examples
    --------
    >>> import densecal, tempfile
    >>> calibrator = densecal.TemperatureScaling().fit([[4.0, 0.0]] * 4, [0, 0, 0, 1])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     calibrator.save(folder + "/ts.densecal")
    ...     densecal.load(folder + "/ts.densecal").temperature_ == calibrator.temperature_
    True
    """
    return from_artefact(path, artefacts.read(path))


def from_artefact(path: str | Path, artefact: artefacts.Artefact) -> Calibrator:
    """Restore the calibrator of an artefact. Errors name the file."""
    if artefact.n_calibrators > 1:
        raise ArtefactError(
            f"{path} holds {artefact.n_calibrators} calibrators, one for each classifier of an ensemble. Read it with "
            "CalibratedClassifier.load(path, estimators)."
        )
    return from_artefact_of_several(path, artefact)[0]


def from_artefact_of_several(path: str | Path, artefact: artefacts.Artefact) -> list[Calibrator]:
    """Restore the calibrators of an artefact, one for each classifier of an ensemble. Errors name the file."""
    try:
        with np.errstate(all="ignore"):
            calibrators = [from_state(state) for state in artefact.states()]
            for calibrator in calibrators:
                _check_answers(calibrator)
        return calibrators
    except ArtefactError as error:
        raise ArtefactError(f"{path}: {error}") from error
    # The values come from a file, so any operation on them can fail in any way.
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise artefacts.damaged(path, error) from error


def _check_answers(calibrator: Calibrator) -> None:
    """Raise unless a restored calibrator returns probabilities: its values come from a file."""
    from densecal.calibrators.base import Samples
    from densecal.calibrators.dac.unlabelled_batch import accuracy_model, can_estimate

    classes = calibrator.n_classes_
    logits = np.zeros((2, classes), np.float32)
    logits[1] = np.linspace(-5, 5, classes)
    dac = calibrator.density_stage
    distances = None if dac is None else np.full((2, len(dac.layers_)), 0.5, np.float32)
    if dac is not None and dac.bank is not None and list(dac.bank.layers) != list(dac.layers_):
        raise ValueError(f"the bank has the layers {list(dac.bank.layers)}, but DAC was fitted on {dac.layers_}.")
    check_probabilities(calibrator.predict_proba(logits, distances=distances))
    if can_estimate(calibrator):
        accuracy_model(calibrator)
    for stage in calibrator.stages:
        answer = stage._apply(Samples(logits, None, None, distances))
        if stage.accuracy_preserving and answer[1, -1] < answer[1].max() * (1 - 1e-5):
            raise ValueError(f"{stage.short_name!r} would change the predicted class, so a learned value is wrong.")


def _state_names(stage: Calibrator) -> tuple[str, ...]:
    return "n_classes_", "is_identity_", *stage.learned


def _stage_state(stage: Calibrator) -> StageState:
    params = {name: value for name, value in stage.get_params(deep=False).items() if name != "bank"}
    return StageState(stage.short_name, params, {name: getattr(stage, name) for name in _state_names(stage)})


def _restore_stage(state: StageState, bank: FeatureBank | None, methods: Mapping[str, type[Calibrator]]) -> Calibrator:
    if state.method not in methods:
        raise ValueError(
            f"unknown method {state.method!r}. A user-defined method is restored by its class: "
            "YourMethod.from_state(densecal.io.artefacts.read(path).state)."
        )
    params = {name: tuple(value) if isinstance(value, list) else value for name, value in state.params.items()}
    stage = methods[state.method](**params)
    if stage.measures_distances:
        stage.set_params(bank=bank)
    allowed = {*_state_names(stage)}
    for name, value in state.learned.items():
        if name not in allowed:
            raise ValueError(f"{name!r} is not a learned attribute.")
        setattr(stage, name, value)
    if missing := sorted(allowed - state.learned.keys()):
        raise ValueError(f"the learned values {', '.join(missing)} of {state.method!r} are missing.")
    classes: object = stage.n_classes_
    if type(classes) is not int or not 2 <= classes <= MOST_CLASSES:
        raise ValueError(f"n_classes_ must be an integer from 2 to {MOST_CLASSES:,}, got {classes!r}.")
    return stage


def learned_values(calibrator: Calibrator) -> list[dict[str, Any]]:
    """Return the learned parameters of each stage that are short enough to show."""
    return [
        {
            name.strip("_"): value
            for name, value in stage.learned.items()
            if name.strip("_") not in NOT_SHOWN and _show(value)
        }
        for stage in calibrator.state().stages
    ]


def learned_numbers(calibrator: Calibrator) -> list[tuple[str, str]]:
    """Return the names and texts of the learned parameters that are short enough to show; names are unique."""
    stages = [stage.short_name for stage in calibrator.stages]
    stages = [f"{name} {place}" if stages.count(name) > 1 else name for place, name in enumerate(stages, start=1)]
    found = [
        (stage, name.replace("_", " "), _show(value))
        for stage, learned in zip(stages, learned_values(calibrator), strict=True)
        for name, value in learned.items()
    ]
    count = Counter(name for _, name, _ in found)
    return [(f"{stage}: {name}" if count[name] > 1 else name, text) for stage, name, text in found]


def _show(value: object) -> str:
    if isinstance(value, (int, float, np.number)) and not isinstance(value, bool):
        return f"{float(value):.3g}"
    if isinstance(value, dict) and "nll_error" in value:
        from densecal.calibrators.dac.guard import describe_cost

        return f"{describe_cost(value)} against temperature scaling"
    if isinstance(value, dict) and "regression" in value:
        domains, kinds = (counted(value["regression"][f"n_{noun}s"], noun) for noun in ("domain", "kind"))
        return f"learned from {domains} under {kinds} of shift"
    if isinstance(value, dict):
        return ", ".join(f"{name} {percent(share)}" for name, share in value.items())
    if isinstance(value, np.ndarray) and value.ndim == 1 and 0 < value.size <= 8:
        return ", ".join(f"{number:.3g}" for number in value.tolist())
    return ""
