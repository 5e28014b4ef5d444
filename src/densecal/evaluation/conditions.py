"""Condition: one test set at one severity of shift, made from outputs in memory or read from files."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from densecal.appearance import DAC, SHIFT_FITTED
from densecal.arrays import Array
from densecal.bank import FeatureBank
from densecal.calibrators.base import Calibrator
from densecal.outputs import Outputs

SUFFIXES = (".safetensors", ".npz")
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
        """Make a condition from outputs, reading name, severity and role from their facts.

        Examples
        --------
        >>> facts = {"condition": "fog", "severity": "3"}
        >>> print(Condition.from_outputs(Outputs([[2.0, 1.0]], labels=[0], facts=facts)))
        fog, severity 3
        """
        facts = outputs.facts
        name = facts.get("condition", name)
        role = facts.get("role", "")
        out_of_domain = role == "ood" or (not role and outputs.labels is None and "ood" in name.lower())
        return cls(name, outputs, _severity(facts, name), out_of_domain=out_of_domain)

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
        Name and severity come from the file's facts; where it has none, from ``NAME=`` or the file's name, whose last
        number is the severity (``fog-3.npz``).

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Outputs([[2.0, 1.0]], labels=[0]).save(f"{folder}/fog-3.safetensors")
    ...     print(*read_conditions([folder]))
    fog, severity 3
    """
    conditions: list[Condition] = []
    for source in sources:
        for name, path in _files_of(str(source)):
            outputs = Outputs.load(path)
            if out_of_domain:
                conditions.append(Condition(outputs.facts.get("condition", name), outputs, out_of_domain=True))
            else:
                conditions.append(_from_file(outputs, name, named="=" in str(source)))
    if not conditions:
        raise ValueError(f"No outputs were found in {', '.join(map(str, sources))}.")
    _refuse_twins(conditions)
    return sorted(conditions, key=lambda condition: (condition.out_of_domain, condition.severity))


def _from_file(outputs: Outputs, name: str, *, named: bool) -> Condition:
    """Take the facts' word before the file name's, and the user's own NAME= before both."""
    match = re.fullmatch(r"(.*?)[-_ ]?(\d+)", name)
    stem, number = (match[1] or CLEAN, int(match[2])) if match else (name, None)
    condition = Condition.from_outputs(outputs, stem)
    if "severity" not in outputs.facts and number is not None:
        condition = replace(condition, severity=number)
    elif "severity" not in outputs.facts and "condition" not in outputs.facts and named:
        condition = replace(condition, name=name)
    return replace(condition, name=stem) if named else condition


def _files_of(source: str) -> Iterator[tuple[str, Path]]:
    name, _, after = source.partition("=")
    path = Path(after) if after and not Path(source).exists() else Path(source)
    name = name if after and not Path(source).exists() else path.stem
    if not path.is_dir() or (path / "logits.npy").exists():
        yield name, path
        return
    files = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES or (file / "logits.npy").exists())
    if not files:
        raise ValueError(
            f"{path} holds no outputs: expected .safetensors or .npz files, or folders with logits.npy, in it."
        )
    yield from ((file.stem, file) for file in files)


def _severity(facts: dict[str, str], name: str) -> int:
    text = facts.get("severity", "0")
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"The severity of {name!r} must be a whole number, got {text!r} in its facts.") from None


def _refuse_twins(conditions: list[Condition]) -> None:
    seen: set[str] = set()
    for condition in conditions:
        if str(condition) in seen:
            raise ValueError(
                f"Two data sets are both called '{condition}'. Give them names: --data first=PATH --data second=PATH."
            )
        seen.add(str(condition))
