"""Condition: one test set at one severity of shift, made from outputs in memory or read from files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from densecal.arrays import Array
from densecal.calibrators.base import Calibrator
from densecal.calibrators.names import DAC, SHIFT_FITTED
from densecal.density.bank import FeatureBank
from densecal.evaluation.test_sets import read_sets
from densecal.outputs import Outputs

CLEAN = "clean"


@dataclass(frozen=True, eq=False)
class Condition:
    """What a classifier said about one test set, and how far that set has moved.

    Parameters
    ----------
    name : str
        What happened to the data: ``"clean"``, ``"fog"``, ...
    outputs : Outputs
        Logits, labels and, for DAC, features.
    severity : int, default 0
        0 is in-domain; 1 to 5 (or any other whole number) is how strong the shift is.
    distances : array of shape (samples, layers), optional
        Distances already measured; without them DAC measures the features itself.
    out_of_domain : bool, default False
        The samples belong to none of the classes: no labels, and only confidences can be judged.

    Examples
    --------
    >>> condition = Condition("fog", Outputs([[2.0, 1.0]], labels=[0]), severity=3)
    >>> str(condition)
    'fog, severity 3'
    """

    name: str
    outputs: Outputs
    severity: int = 0
    distances: Array | None = None
    out_of_domain: bool = False

    def __post_init__(self) -> None:
        if self.outputs.labels is None and not self.out_of_domain:
            raise ValueError(
                f"The condition {self.name!r} has no labels, so nobody can say how honest its confidences are. Add "
                "labels, or mark it as out-of-domain."
            )

    def __str__(self) -> str:
        if self.out_of_domain:
            return f"{self.name}, out of domain"
        return self.name if self.severity == 0 else f"{self.name}, severity {self.severity}"

    @classmethod
    def from_outputs(cls, outputs: Outputs, name: str = CLEAN) -> Condition:
        """Make a condition from outputs, reading name, severity and role from their metadata.

        Examples
        --------
        >>> metadata = {"condition": "fog", "severity": "3"}
        >>> print(Condition.from_outputs(Outputs([[2.0, 1.0]], labels=[0], metadata=metadata)))
        fog, severity 3
        """
        metadata = outputs.metadata
        name = metadata.get("condition", name)
        role = metadata.get("role", "")
        out_of_domain = role == "ood" or (not role and outputs.labels is None and "ood" in name.lower())
        return cls(name, outputs, _severity(metadata, name), out_of_domain=out_of_domain)

    def measured_with(self, bank: FeatureBank) -> Condition:
        """Return the condition with its distances to the training data, so that they are measured only once."""
        return replace(self, distances=bank.distances(self.outputs.features))

    def density_inputs(self) -> dict[str, Any]:
        """Return the keyword arguments that calibrators take besides logits."""
        if self.distances is not None:
            return {"distances": self.distances}
        return {"features": self.outputs.features or None}


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


def read_conditions(sources: Sequence[str | Path], *, out_of_domain: bool = False) -> list[Condition]:
    """Read conditions from files and folders, in the order of their severity.

    Parameters
    ----------
    sources : sequence of str or path
        Each is anything `Outputs.load` reads, or a folder of such files (several conditions), or ``NAME=PATH``.
    out_of_domain : bool, default False
        The samples belong to none of the classes.

    Returns
    -------
    list of Condition
        Name and severity come from the file's metadata; where it has none, from ``NAME=`` or the file's name, if that can
        mean nothing else: ``fog-3``, ``night-severity-2``, or ``test-1`` beside ``test-3``.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Outputs([[2.0, 1.0]], labels=[0]).save(f"{folder}/fog-3.safetensors")
    ...     print(*read_conditions([folder]))
    fog, severity 3
    """
    return [given.condition for given in read_sets([str(source) for source in sources], out_of_domain=out_of_domain)]


def _severity(metadata: dict[str, str], name: str) -> int:
    text = metadata.get("severity", "0")
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"The severity of {name!r} must be a whole number, got {text!r} in its metadata.") from None
