"""Condition: the outputs of one test set, its name and the severity of its shift."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from densecal.calibrators.validation_warnings import accuracy_at_chance
from densecal.io.atomic_files import listed
from densecal.outputs import Outputs, OutputShards

CLEAN = "clean"


@dataclass(frozen=True, eq=False)
class Condition:
    """The outputs of a classifier on one test set, and the severity of the shift.

    Parameters
    ----------
    name : str
        The kind of shift: ``"clean"``, ``"fog"``, ...
    outputs : Outputs or OutputShards
        Logits, labels and, for DAC, features or distances; in memory, or in files that are read in batches.
    severity : int, default 0
        The strength of the shift. 0 means in-domain; benchmarks use 1 to 5.
    out_of_domain : bool, default False
        Whether the samples belong to none of the classes. Such a set needs no labels; only its confidence is evaluated.
    natural : bool, default False
        Whether the shift is natural, such as photographs from another source, with unknown severity. Such a set has its
        own row in every table and is never averaged with others.
    sampled_from : int, optional
        The number of samples of the set, if the outputs are only a random sample of them.

    Examples
    --------
    >>> condition = Condition("fog", Outputs([[2.0, 1.0]], labels=[0]), severity=3)
    >>> str(condition)
    'fog, severity 3'
    """

    name: str
    outputs: Outputs | OutputShards
    severity: int = 0
    out_of_domain: bool = False
    natural: bool = False
    sampled_from: int | None = None

    def __post_init__(self) -> None:
        if self.natural and (self.severity or self.out_of_domain):
            raise ValueError(
                f"The condition {self.name!r} is a natural shift, so it has no severity and its samples belong to the "
                f"classes, got severity={self.severity}, out_of_domain={self.out_of_domain}."
            )
        if not self.outputs.has_labels and not self.out_of_domain:
            raise ValueError(
                f"The condition {self.name!r} has no labels, which are needed to measure calibration. Add labels, or "
                "set out_of_domain=True."
            )

    @property
    def n_samples(self) -> int:
        """The number of samples of the set."""
        return len(self.outputs) if self.sampled_from is None else self.sampled_from

    def __str__(self) -> str:
        if self.out_of_domain:
            return f"{self.name}, out of domain"
        if self.natural:
            return f"{self.name}, natural shift"
        return self.name if self.severity == 0 else f"{self.name}, severity {self.severity}"

    @property
    def level(self) -> int | str:
        """The group in which the condition is averaged: its severity, or the name of a natural shift."""
        return self.name if self.natural else self.severity

    @property
    def loaded(self) -> Outputs:
        """The outputs in memory; those of a condition in an `EvaluationTable` already are."""
        return self.outputs.load() if isinstance(self.outputs, OutputShards) else self.outputs

    @classmethod
    def from_outputs(
        cls,
        outputs: Outputs | OutputShards,
        *,
        name: str = CLEAN,
        severity: int = 0,
        out_of_domain: bool = False,
        natural: bool = False,
    ) -> Condition:
        """Return a condition whose name, severity and role come from the outputs' metadata.

        The keys of the metadata are ``condition``, ``severity`` and ``role`` (``"ood"`` for out-of-domain data,
        ``"natural"`` for a natural shift). The arguments apply where the metadata has no such key.

        Examples
        --------
        >>> metadata = {"condition": "fog", "severity": "3"}
        >>> print(Condition.from_outputs(Outputs([[2.0, 1.0]], labels=[0], metadata=metadata)))
        fog, severity 3
        """
        known, role = outputs.metadata.get("condition", name), role_of(outputs, out_of_domain, natural)
        if role == "ood":
            return cls(known, outputs, out_of_domain=True)
        if role == "natural":
            return cls(name if known == CLEAN else known, outputs, natural=True)
        given = outputs.metadata.get("severity")
        try:
            severity = severity if given is None else int(given)
        except ValueError:
            raise ValueError(f"The severity of {known!r} must be an integer, got {given!r} in its metadata.") from None
        return cls(known, outputs, severity)


def role_of(outputs: Outputs | OutputShards, out_of_domain: bool, natural: bool) -> str | None:
    """Return the role of a set by the arguments or else by its metadata: "ood", "natural" or None."""
    if out_of_domain:
        return "ood"
    return "natural" if natural else outputs.metadata.get("role")


def samples_per_level(conditions: Iterable[Condition]) -> Counter[int | str]:
    """Return the number of samples of each severity and natural shift."""
    sizes: Counter[int | str] = Counter()
    for condition in conditions:
        sizes[condition.level] += condition.n_samples
    return sizes


def chance_cautions(conditions: Iterable[Condition]) -> list[str]:
    """Return a warning that names the labelled conditions on which the classifier is no better than chance."""
    found = {str(one): accuracy_at_chance(one.loaded.logits, one.loaded.labels) for one in conditions}
    at_chance = [f"{name} ({accuracy})" for name, accuracy in found.items() if accuracy]
    if not at_chance:
        return []
    return [
        f"The classifier is no better than chance on {listed(at_chance)}. Check that the labels "
        "and the samples are in the same order, and the classes in the order of the scores: otherwise the errors say "
        "nothing about the calibration. If they are, the shift is so strong that the classifier fails."
    ]
