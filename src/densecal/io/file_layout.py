"""What the columns of a table, or the arrays of a file, hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self


@dataclass(frozen=True)
class FileLayout:
    """What the columns of a table, or the arrays of a file, hold. The defaults are the names that densecal writes.

    ``scores`` names columns, separated by commas, or a pattern such as ``p_*``; of arrays it names the one. ``classes``
    are the names of the classes in the order of the scores. ``probability_floor`` stands for probabilities of zero.
    """

    scores: str | None = None
    labels: str | None = None
    id: str | None = None
    classes: tuple[str, ...] = ()
    probabilities: bool = False
    probability_floor: float | None = None
    delimiter: str | None = None
    decimal: str = "."
    assume_logits: bool = False

    def following(self, classes: Sequence[str], probability_floor: float | None) -> Self:
        """Return the layout with the classes, unless it names them, and the floor of data that were read before."""
        return replace(self, classes=self.classes or tuple(classes), probability_floor=probability_floor)

    def for_calibrator(self, metadata: Mapping[str, Any]) -> Self:
        """Return the layout with the classes and the floor of the fit, from the metadata of a calibrator's file."""
        fit = metadata.get("sklearn", metadata)
        return self.following([str(name) for name in fit.get("classes", ())], fit.get("probability_floor"))


DEFAULT_LAYOUT = FileLayout()
