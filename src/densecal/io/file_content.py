"""What the arrays of a file, or the columns of a table, hold: logits, labels, ids and the names of the classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from densecal.arrays import probability_floor, to_logits
from densecal.arrays.checks import FEW_ROWS
from densecal.errors import ArtefactError, listed, warn_user

EXPECTED = "Expected names: logits, labels and features/LAYER. Otherwise say which they are: --scores, --labels, --id."
FEATURE_PREFIX = "features/"
SUM_TOLERANCE = 0.25
"""Rounding to few decimals changes the sum of many probabilities by up to this."""


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


@dataclass(frozen=True)
class FileContent:
    """The content of a file of outputs."""

    logits: Any
    labels: Any = None
    features: Mapping[str, Any] = field(default_factory=dict)
    ids: Any = None
    classes: tuple[str, ...] = ()
    probability_floor: float | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    assume_logits: bool = False


def interpret(path: Path, arrays: Mapping[str, Any], metadata: Mapping[str, str], layout: FileLayout) -> FileContent:
    """Return what the arrays of a file hold; warn of those that are not used."""
    left = dict(arrays)
    features = {name.removeprefix(FEATURE_PREFIX): left.pop(name) for name in arrays if name.startswith(FEATURE_PREFIX)}
    scores = _pop(path, left, layout.scores or _default_scores(left, layout))
    labels = _pop(path, left, layout.labels) if layout.labels else left.pop("labels", None)
    ids = _pop(path, left, layout.id) if layout.id else left.pop("ids", None)
    named = left.pop("classes", None)
    classes = layout.classes or (() if named is None else tuple(str(one) for one in np.ravel(named)))
    logits, floor = _logits(path, scores, layout)
    if classes and logits.ndim == 2 and len(classes) != logits.shape[1]:
        raise ArtefactError(f"{path} has scores of {logits.shape[1]} classes, but the classes are {listed(classes)}.")
    if left:
        warn_user(f"{path}: {listed(sorted(left))} {'is' if len(left) == 1 else 'are'} ignored. {EXPECTED}")
    return FileContent(
        logits,
        None if labels is None else encode_labels(path, labels, classes),
        features,
        ids,
        classes,
        floor,
        metadata,
        # The logarithms of probabilities are logits, whatever they look like.
        assume_logits=layout.assume_logits or layout.probabilities,
    )


def _default_scores(arrays: Mapping[str, Any], layout: FileLayout) -> str:
    return "probabilities" if layout.probabilities and "logits" not in arrays else "logits"


def _pop(path: Path, arrays: dict[str, Any], name: str) -> Any:
    if name not in arrays:
        raise ArtefactError(
            f"{path} has no array named {name!r}, only {listed(sorted(arrays)) or 'nothing'}. {EXPECTED}"
        )
    return arrays.pop(name)


def _logits(path: Path, scores: Any, layout: FileLayout) -> tuple[Any, float | None]:
    """Return scores as logits, and what stands for a probability of zero. One score is that of the second class."""
    single = scores.ndim == 1 or (scores.ndim == 2 and scores.shape[1] == 1)
    if not layout.probabilities:
        if single and len(scores) >= FEW_ROWS and not layout.assume_logits and 0 <= scores.min() <= scores.max() <= 1:
            raise ArtefactError(
                f"{path}: every score lies in [0, 1], as probabilities do. Pass --probabilities or, if they are "
                "logits, --assume-logits."
            )
        return (np.stack([np.zeros(len(scores)), np.ravel(scores)], axis=1) if single else scores), None
    shares = _shares(path, np.asarray(scores, dtype=np.float64), single=single)
    floor = probability_floor(shares) if layout.probability_floor is None else layout.probability_floor
    return to_logits(shares, floor), floor


def _shares(path: Path, values: Any, *, single: bool) -> Any:
    """Return probabilities or percentages as probabilities of each class; raise if they are neither."""
    if not np.isfinite(values).all():
        row = int(np.argwhere(~np.isfinite(values))[0][0])
        raise ArtefactError(f"{path}: the probabilities must be finite, got NaN or infinity, first in row {row}.")
    total = 100.0 if values.size and values.max() > 1 + 1e-6 else 1.0
    shares = values / total
    low, high = (float(shares.min()), float(shares.max())) if values.size else (0.0, 1.0)
    if low < -1e-6 or high > 1 + 1e-6:
        raise ArtefactError(
            f"{path}: with --probabilities the scores must lie in [0, 1], or in [0, 100] as percentages, got values "
            f"from {values.min():g} to {values.max():g}. If they are logits, omit --probabilities."
        )
    shares = np.clip(shares, 0, 1)
    if single:
        return np.stack([1 - np.ravel(shares), np.ravel(shares)], axis=1)
    sums = shares.sum(axis=-1)
    if sums.size and np.abs(sums - 1).max() > SUM_TOLERANCE:
        row = int(np.abs(sums - 1).argmax())
        raise ArtefactError(
            f"{path}: with --probabilities every row must sum to 1, or to 100 as percentages, but row {row} sums to "
            f"{total * sums[row]:g}. Check --scores; other columns may be among them."
        )
    return shares


def encode_labels(path: Path, labels: Any, classes: Sequence[str]) -> Any:
    """Return the position of each label among the classes; integers that are no names of classes count them from 0."""
    labels = np.asarray(labels)
    are_numbers = labels.dtype.kind in "biuf"
    if labels.ndim != 1 or (are_numbers and not classes):
        return labels
    values = labels.tolist()
    missing = [row for row, one in enumerate(values) if one is None or one != one]
    if missing:
        raise ArtefactError(f"{path}: the label of row {missing[0]} is missing. Remove such rows ({len(missing)}).")
    texts = [str(int(one)) if isinstance(one, float) and one == int(one) else str(one) for one in values]
    places = {name: place for place, name in enumerate(classes)}
    unknown = sorted(set(texts) - places.keys())
    if not unknown:
        return np.array([places[text] for text in texts])
    if are_numbers:
        return labels
    if not classes:
        raise ArtefactError(
            f"{path} has the labels {listed(unknown)}, but its scores do not name their classes. Name them in the "
            f"order of the scores: --classes {','.join(unknown[:3])} (with one score: the other class, then its own)."
        )
    raise ArtefactError(f"{path} has the labels {listed(unknown)}, but the classes are {listed(classes)}.")
