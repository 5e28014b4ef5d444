"""Measurements: all that the paper's tables need to know about one classifier, in one folder.

For each data set the logits and, in each layer, the distances to the k-th neighbours, for several k. With these, every
table and figure is made again in minutes, without a GPU, the images or the network.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from densecal.evaluation import Condition
from densecal.io import storage
from densecal.outputs import Outputs
from reproduction.classifiers import CLASSIFIERS, Classifier
from reproduction.compact import DISTANCE_STEP, LOGIT_STEP, pack, unpack

FORMAT = "densecal.measurements"
VAL, CLEAN, OOD, PERTURBED = "val", "clean", "ood-", "perturbed-"


class MeasuredSet:
    """Logits, distances of shape (samples, layers, ks) and, where they are known, labels of one data set.

    Read from a file it unpacks itself when first asked for.
    """

    def __init__(self, logits: Any, distances: Any, labels: Any = None) -> None:
        self._logits, self._distances, self.labels = logits, distances, labels

    @cached_property
    def logits(self) -> Any:
        """The logits, float32."""
        return np.asarray(self._logits() if callable(self._logits) else self._logits, np.float32)

    @cached_property
    def distances(self) -> Any:
        """The distances, float32."""
        return np.asarray(self._distances() if callable(self._distances) else self._distances, np.float32)

    def rows(self, chosen: Any) -> MeasuredSet:
        """Return the set's part at these rows."""
        labels = None if self.labels is None else self.labels[chosen]
        return MeasuredSet(self.logits[chosen], self.distances[chosen], labels)


@dataclass(frozen=True)
class Measurements:
    """What one classifier said of every data set, and how far each input lies from its training data.

    Attributes
    ----------
    classifier : str
        Its name in `reproduction.CLASSIFIERS`.
    layers, ks
        What the distances' second and third axis count.
    sets : mapping of str to MeasuredSet
        ``"val"``, ``"clean"``, ``"fog-3"``, ..., ``"ood-..."`` without labels, and ``"perturbed-..."``.

    Examples
    --------
    >>> logits, distances = np.zeros((4, 10)), np.ones((4, 2, 1))
    >>> sets = {"clean": MeasuredSet(logits, distances, np.zeros(4, int)), "fog-3": MeasuredSet(logits, distances)}
    >>> measured = Measurements("c10-resnet18", ("layer4", "logits"), (50,), sets)
    >>> [str(condition) for condition in measured.conditions(50)]
    ['clean', 'fog, severity 3']
    """

    classifier: str
    layers: tuple[str, ...]
    ks: tuple[int, ...]
    sets: Mapping[str, MeasuredSet]

    @property
    def about(self) -> Classifier:
        """The classifier's row of the registry."""
        return CLASSIFIERS[self.classifier]

    def labels(self, name: str) -> Any:
        """Return a set's labels: corrupted sets have the clean set's, perturbed sets those of what was perturbed."""
        own = self.sets[name].labels
        if own is not None:
            return own
        source = VAL if name.startswith(PERTURBED) and VAL in self.sets else CLEAN
        labels = self.sets[source].labels
        if labels is None or len(labels) != len(self.sets[name].logits):
            raise ValueError(f"The set {name!r} of {self.classifier} has no labels, and {source!r} has none for it.")
        return labels

    def distances(self, name: str, k: int, layers: Sequence[str] | None = None) -> Any:
        """Return a set's distances to the k-th neighbour, of shape (samples, layers)."""
        if k not in self.ks:
            raise ValueError(f"k must be one of the measured {list(self.ks)}, got {k}.")
        chosen = [self.layers.index(layer) for layer in (self.layers if layers is None else layers)]
        return self.sets[name].distances[:, chosen, self.ks.index(k)]

    def condition(self, name: str, k: int, layers: Sequence[str] | None = None) -> Condition:
        """Return one set as the evaluation takes it."""
        distances = self.distances(name, k, layers)
        if name.startswith(OOD):
            outputs = Outputs(self.sets[name].logits)
            return Condition(name.removeprefix(OOD), outputs, distances=distances, out_of_domain=True)
        stem, _, level = name.rpartition("-")
        shifted = level.isdigit() and not name.startswith(PERTURBED)
        outputs = Outputs(self.sets[name].logits, labels=self.labels(name))
        return Condition(stem if shifted else name, outputs, int(level) if shifted else 0, distances)

    def conditions(self, k: int, layers: Sequence[str] | None = None) -> list[Condition]:
        """Return the labelled test sets, by severity."""
        names = [name for name in self.sets if name != VAL and not name.startswith((OOD, PERTURBED))]
        found = [self.condition(name, k, layers) for name in names]
        return sorted(found, key=lambda condition: condition.severity)

    def out_of_domain(self, k: int, layers: Sequence[str] | None = None) -> list[Condition]:
        """Return the sets of other classes."""
        return [self.condition(name, k, layers) for name in self.sets if name.startswith(OOD)]

    def with_validation_from_test(self, count: int = 5000, seed: int = 0) -> Measurements:
        """Fit on ``count`` of the clean test images and judge on the others, for a classifier without a validation set.

        The same images leave every corrupted test set.
        """
        total = len(self.sets[CLEAN].logits)
        if not 0 < count < total:
            raise ValueError(f"count must be between 1 and {total - 1}, the test set's size less one, got {count}.")
        drawn = np.sort(np.random.RandomState(seed).permutation(total)[:count])
        rest = np.setdiff1d(np.arange(total), drawn)
        sets = {VAL: MeasuredSet(self.sets[CLEAN].logits, self.sets[CLEAN].distances, self.labels(CLEAN)).rows(drawn)}
        for name, measured in self.sets.items():
            if name.startswith(OOD):
                sets[name] = measured
            elif name != VAL:
                whole = MeasuredSet(measured.logits, measured.distances, self.labels(name))
                sets[name] = whole.rows(drawn if name.startswith(PERTURBED) else rest)
        return Measurements(self.classifier, self.layers, self.ks, sets)

    def save(self, folder: str | Path) -> None:
        """Write one file a severity into a folder, in fixed point: see `reproduction.compact`."""
        for part, names in _parts(self.sets).items():
            arrays: dict[str, Any] = {}
            for name in names:
                measured = self.sets[name]
                arrays[f"{name}/logits"] = pack(measured.logits, LOGIT_STEP)
                arrays[f"{name}/distances"] = pack(measured.distances, DISTANCE_STEP)
                if measured.labels is not None:
                    arrays[f"{name}/labels"] = np.asarray(measured.labels, np.int16)
            header = {
                "format": FORMAT,
                "classifier": self.classifier,
                "layers": list(self.layers),
                "ks": list(self.ks),
                "steps": [LOGIT_STEP, DISTANCE_STEP],
                "shapes": {name: self.sets[name].logits.shape for name in names},
            }
            storage.write(Path(folder) / f"{part}.safetensors", header, arrays)

    @classmethod
    def load(cls, folder: str | Path) -> Measurements:
        """Read what `save` wrote."""
        paths = sorted(Path(folder).glob("*.safetensors"))
        if not paths:
            raise FileNotFoundError(f"{folder} holds no measurements: there is no .safetensors file in it.")
        sets: dict[str, MeasuredSet] = {}
        for path in paths:
            header, arrays = storage.read(path, FORMAT)
            layers, ks = tuple(header["layers"]), tuple(header["ks"])
            for name, shape in header["shapes"].items():
                sets[name] = _read_set(name, arrays, tuple(shape), (len(layers), len(ks)), header["steps"])
        return cls(header["classifier"], layers, ks, sets)


def _read_set(
    name: str, arrays: Mapping[str, Any], shape: tuple[int, int], depth: tuple[int, int], steps: Sequence[float]
) -> MeasuredSet:
    logits, distances = arrays[f"{name}/logits"], arrays[f"{name}/distances"]
    labels = arrays.get(f"{name}/labels")
    return MeasuredSet(
        lambda: unpack(logits, shape, steps[0]),
        lambda: unpack(distances, (shape[0], *depth), steps[1]),
        None if labels is None else np.array(labels, np.int64),
    )


def _parts(names: Iterable[str]) -> dict[str, list[str]]:
    """Group the sets into files: what is clean, each severity, out-of-domain, perturbed."""
    parts: dict[str, list[str]] = {}
    for name in names:
        level = name.rpartition("-")[2]
        if name.startswith(OOD):
            part = "out-of-domain"
        elif name.startswith(PERTURBED):
            part = "perturbed"
        else:
            part = f"severity-{level if level.isdigit() else 0}"
        parts.setdefault(part, []).append(name)
    return parts
