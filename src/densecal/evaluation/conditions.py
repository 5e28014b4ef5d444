"""Condition: the outputs of one test set, its name and the severity of its shift."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from densecal.arrays import Array
from densecal.calibrators.base import Calibrator
from densecal.calibrators.names import DAC, SHIFT_FITTED
from densecal.density.bank import FeatureBank
from densecal.outputs import Outputs

CLEAN = "clean"


@dataclass(frozen=True, eq=False)
class Condition:
    """A classifier's outputs on one test set, and how strongly that set is shifted.

    Parameters
    ----------
    name : str
        What happened to the data: ``"clean"``, ``"fog"``, ...
    outputs : Outputs
        Logits, labels and, for DAC, features or distances.
    severity : int, default 0
        The strength of the shift. 0 means in-domain; benchmarks use 1 to 5.
    out_of_domain : bool, default False
        The samples belong to none of the classes. Such a set needs no labels; only its confidences are evaluated.

    Examples
    --------
    >>> condition = Condition("fog", Outputs([[2.0, 1.0]], labels=[0]), severity=3)
    >>> str(condition)
    'fog, severity 3'
    """

    name: str
    outputs: Outputs
    severity: int = 0
    out_of_domain: bool = False
    distances: Array | None = None

    def __post_init__(self) -> None:
        if self.outputs.labels is None and not self.out_of_domain:
            raise ValueError(
                f"The condition {self.name!r} has no labels, which are needed to measure calibration. Add labels, or "
                "set out_of_domain=True."
            )

    def __str__(self) -> str:
        if self.out_of_domain:
            return f"{self.name}, out of domain"
        return self.name if self.severity == 0 else f"{self.name}, severity {self.severity}"

    def measured_with(self, bank: FeatureBank) -> Condition:
        """Return the condition with its distances to the training data, so that they are measured only once."""
        return replace(self, distances=bank.distances(self.outputs.features))

    def density_inputs(self) -> dict[str, Any]:
        """Return the keyword arguments that calibrators take besides logits."""
        if self.distances is not None:
            return {"distances": self.distances}
        return {"features": self.outputs.features or None}

    @classmethod
    def from_outputs(
        cls, outputs: Outputs, *, name: str = CLEAN, severity: int = 0, out_of_domain: bool = False
    ) -> Condition:
        """Return a condition whose name, severity and role come from the outputs' metadata.

        The metadata keys are ``condition``, ``severity`` and ``role`` (``"ood"`` for out-of-domain data). The
        arguments apply where the metadata has no such key.

        Examples
        --------
        >>> metadata = {"condition": "fog", "severity": "3"}
        >>> print(Condition.from_outputs(Outputs([[2.0, 1.0]], labels=[0], metadata=metadata)))
        fog, severity 3
        """
        metadata = outputs.metadata
        name = metadata.get("condition", name)
        if out_of_domain or is_out_of_domain(outputs):
            return cls(name, outputs, out_of_domain=True)
        if "severity" in metadata:
            severity = _parse_severity(metadata["severity"], name)
        return cls(name, outputs, severity)


def is_out_of_domain(outputs: Outputs) -> bool:
    """Whether the metadata mark the samples as belonging to none of the classes."""
    return outputs.metadata.get("role") == "ood"


def _parse_severity(text: str, name: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"The severity of {name!r} must be an integer, got {text!r} in its metadata.") from None


# TEMP
def measure_distances(conditions: Iterable[Condition], bank: FeatureBank | None) -> list[Condition]:
    """Measure every condition's distances once, with a progress bar; conditions that have theirs keep them.

    Examples
    --------
    >>> bank = FeatureBank({"pool": [[1.0, 0.0], [0.0, 1.0]]}, k=1)
    >>> here = Condition("clean", Outputs([[2.0, 1.0]], labels=[0], features={"pool": [[1.0, 0.0]]}))
    >>> measure_distances([here], bank)[0].distances.shape
    (1, 1)
    """
    from densecal.progress import track

    conditions = list(conditions)
    if bank is None:
        return conditions
    return [
        condition if condition.distances is not None else condition.measured_with(bank)
        for condition in track(conditions, "distances")
    ]


def bank_of(calibrator: Calibrator) -> FeatureBank | None:
    """Return the bank that a calibrator measures distances with, if it has one.

    Examples
    --------
    >>> from densecal import TemperatureScaling
    >>> bank_of(TemperatureScaling()) is None
    True
    """
    stage = density_stage(calibrator)
    return None if stage is None else stage.bank


def density_stage(calibrator: Calibrator) -> Any | None:
    """Return the stage of a calibrator that turns distances into temperatures, if there is one.

    Examples
    --------
    >>> from densecal import DAC, Chain, TemperatureScaling
    >>> density_stage(Chain(DAC(), TemperatureScaling()))
    DAC()
    """
    for stage in getattr(calibrator, "stages", (calibrator,)):
        # Parameterized temperature scaling has temperatures as well, but measures no distance.
        if hasattr(stage, "temperatures") and hasattr(stage, "bank"):
            return stage
    return None


def method_name(calibrator: Calibrator) -> str:
    """Return the name under which a calibrator is shown: its short name, and whether DAC was fitted for shift.

    Examples
    --------
    >>> from densecal import DAC, Chain, TemperatureScaling
    >>> method_name(Chain(DAC(), TemperatureScaling()))
    'dac+ts'
    """
    stage = density_stage(calibrator)
    if not getattr(stage, "shift_fitted", False):
        return calibrator.short_name
    return "+".join(SHIFT_FITTED if part == DAC else part for part in calibrator.short_name.split("+"))
