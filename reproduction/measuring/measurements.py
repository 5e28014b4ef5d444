"""Measurements of one classifier: everything the paper's tables need, in one folder.

They contain the logits of each data set and, for every layer, the distances to the k-th neighbours for several k. All
tables and figures are made from them in minutes, without a GPU, the images or the network.
"""

from __future__ import annotations

import lzma
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from densecal.evaluation import Condition
from densecal.io import safetensors_file
from densecal.outputs import Distances, Outputs
from reproduction.classifiers import CLASSIFIERS, Classifier

Bytes = NDArray[np.uint8]
FORMAT = "densecal.measurements"
VAL, CLEAN, OOD, PERTURBED = "val", "clean", "ood-", "perturbed-"
COPY = f"{PERTURBED}copy-"
"""A copy of the validation set, with the perturbations of `densecal.torch.calibrate`; the seed follows."""
FILE_BYTES = 15_500_000
"""Maximum size of a file; further sets are written to another file."""
LOGIT_STEP, DISTANCE_STEP = 2.0**-7, 2.0**-10
"""Values are stored in fixed point: the steps are fine enough for calibration, and differences compress well."""
COARSE_STEP, MANY_CLASSES = 2.0**-4, 100
"""The step of the logits from this many classes: the logits are most of the bytes, and each matters less."""


class MeasuredSet:
    """Logits, distances of shape (n_samples, n_layers, n_ks) and, if known, labels of one data set.

    Arrays from a file are unpacked when they are first used.
    """

    def __init__(self, logits: Any, distances: Any, labels: Any = None) -> None:
        self._logits, self._distances, self.labels = logits, distances, labels

    @cached_property
    def logits(self) -> Any:
        return np.asarray(self._logits() if callable(self._logits) else self._logits, np.float32)

    @cached_property
    def distances(self) -> Any:
        """The distances, float32."""
        return np.asarray(self._distances() if callable(self._distances) else self._distances, np.float32)

    def __len__(self) -> int:
        return len(self.logits)

    def rows(self, chosen: Any) -> MeasuredSet:
        labels = None if self.labels is None else self.labels[chosen]
        return MeasuredSet(self.logits[chosen], self.distances[chosen], labels)


@dataclass(frozen=True)
class Measurements:
    """Logits of one classifier on every data set, and distances of the inputs from its training data.

    The sets are ``"val"``, ``"clean"``, ``"fog-3"``, ..., ``"ood-..."`` without labels, and ``"perturbed-..."``;
    ``layers`` and ``ks`` are the second and third axes of their distances; k None is the nearest centre.
    """

    classifier: str
    layers: tuple[str, ...]
    ks: tuple[int | None, ...]
    sets: Mapping[str, MeasuredSet]

    @property
    def about(self) -> Classifier:
        return CLASSIFIERS[self.classifier]

    def labels(self, name: str) -> Any:
        """Return a set's labels: corrupted sets have the clean set's, perturbed sets those of their source."""
        own = self.sets[name].labels
        if own is not None:
            return own
        source = VAL if name.startswith(PERTURBED) and VAL in self.sets else CLEAN
        labels = self.sets[source].labels
        if labels is None or len(labels) != len(self.sets[name]):
            raise ValueError(f"The set {name!r} of {self.classifier} has no labels, and {source!r} has none for it.")
        return labels

    def distances(self, name: str, k: int | None, layers: Sequence[str] | None = None) -> Any:
        """Return a set's distances to the k-th neighbour or (None) nearest centre, shape (n_samples, n_layers)."""
        if k not in self.ks:
            raise ValueError(f"k must be one of the measured {list(self.ks)}, got {k}.")
        chosen = [self.layers.index(layer) for layer in (self.layers if layers is None else layers)]
        return self.sets[name].distances[:, chosen, self.ks.index(k)]

    def outputs(self, name: str, k: int | None, layers: Sequence[str] | None = None) -> Outputs:
        """Return one set's logits, labels and distances."""
        labels = None if name.startswith(OOD) else self.labels(name)
        names = self.layers if layers is None else tuple(layers)
        distances = Distances(self.distances(name, k, names), names, k)
        return Outputs(self.sets[name].logits, labels).with_distances(distances)

    def condition(self, name: str, k: int | None, layers: Sequence[str] | None = None) -> Condition:
        return as_condition(name, self.outputs(name, k, layers))

    def conditions(self, k: int | None, layers: Sequence[str] | None = None) -> list[Condition]:
        """Return the labelled test sets, by severity."""
        found = [self.condition(name, k, layers) for name in labelled_sets(self.sets)]
        return sorted(found, key=lambda condition: condition.severity)

    def out_of_domain(self, k: int | None, layers: Sequence[str] | None = None) -> list[Condition]:
        return [self.condition(name, k, layers) for name in self.sets if name.startswith(OOD)]

    def with_validation_from_test(self, count: int = 5000) -> Measurements:
        """Return measurements with ``count`` clean test images as the validation set, for a classifier without one.

        These images are removed from all test sets.
        """
        total = len(self.sets[CLEAN])
        if not 0 < count < total:
            raise ValueError(f"count must be between 1 and {total - 1} (size of the test set minus one), got {count}.")
        drawn = np.sort(np.random.RandomState(0).permutation(total)[:count])
        rest = np.setdiff1d(np.arange(total), drawn)
        sets = {VAL: self._labelled(CLEAN).rows(drawn)}
        for name, measured in self.sets.items():
            if name.startswith(OOD):
                sets[name] = measured
            elif name != VAL:
                sets[name] = self._labelled(name).rows(drawn if name.startswith(PERTURBED) else rest)
        return Measurements(self.classifier, self.layers, self.ks, sets)

    def _labelled(self, name: str) -> MeasuredSet:
        return MeasuredSet(self.sets[name].logits, self.sets[name].distances, self.labels(name))

    def save(self, folder: str | Path) -> None:
        """Write one or more files per severity into a folder, in fixed point."""
        widest = max(measured.logits.shape[1] for measured in self.sets.values())
        step = LOGIT_STEP if widest < MANY_CLASSES else COARSE_STEP
        with ThreadPoolExecutor() as pool:
            every = dict(zip(self.sets, pool.map(partial(self._pack, logit_step=step), self.sets), strict=True))
        for part, names in _parts(self.sets).items():
            parts: list[dict[str, dict[str, Any]]] = [{}]
            filled = 0
            for name in names:
                packed = every[name]
                size = sum(array.nbytes for array in packed.values())
                if parts[-1] and filled + size > FILE_BYTES:
                    parts.append({})
                    filled = 0
                parts[-1][name] = packed
                filled += size
            for number, sets in enumerate(parts):
                header = {
                    "format": FORMAT,
                    "classifier": self.classifier,
                    "layers": list(self.layers),
                    "ks": list(self.ks),
                    "steps": [step, DISTANCE_STEP],
                    "shapes": {name: self.sets[name].logits.shape for name in sets},
                }
                arrays = {f"{name}/{key}": array for name, packed in sets.items() for key, array in packed.items()}
                stem = f"{part}.{number}" if number else part
                safetensors_file.write(Path(folder) / f"{stem}.safetensors", header, arrays)

    def _pack(self, name: str, logit_step: float) -> dict[str, Any]:
        measured = self.sets[name]
        packed: dict[str, Any] = {
            "logits": pack(measured.logits, logit_step),
            "distances": pack(measured.distances, DISTANCE_STEP),
        }
        if measured.labels is not None:
            packed["labels"] = np.asarray(measured.labels, np.int16)
        return packed

    @classmethod
    def load(cls, folder: str | Path) -> Measurements:
        """Read measurements written by `save`."""
        paths = sorted(Path(folder).glob("*.safetensors"))
        if not paths:
            raise FileNotFoundError(f"{folder} has no measurements: expected .safetensors files.")
        sets: dict[str, MeasuredSet] = {}
        for path in paths:
            header, arrays = safetensors_file.read(path, FORMAT, checksum=False)
            layers, ks = tuple(header["layers"]), tuple(header["ks"])
            for name, shape in header["shapes"].items():
                sets[name] = _read_set(name, arrays, tuple(shape), (len(layers), len(ks)), header["steps"])
        return cls(header["classifier"], layers, ks, sets)


def labelled_sets(names: Iterable[str]) -> list[str]:
    return [name for name in names if name != VAL and not name.startswith((OOD, PERTURBED))]


def as_condition(name: str, outputs: Outputs) -> Condition:
    """Return a test set as a condition of the evaluation: ``fog-3`` is fog at severity 3."""
    if name.startswith(OOD):
        return Condition(name.removeprefix(OOD), outputs, out_of_domain=True)
    stem, _, level = name.rpartition("-")
    return Condition(stem, outputs, int(level)) if level.isdigit() else Condition(name, outputs)


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
    """Group the sets into files: the clean ones, each severity, out-of-domain, perturbed."""
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


def pack(values: Any, step: float) -> Bytes:
    """Pack an array of shape (n_samples, ...) into bytes; each number is rounded to a multiple of ``step``.

    Arrays with three axes are stored as differences along the last axis.
    """
    whole = np.rint(np.asarray(values, np.float64) / step)
    if not np.isfinite(whole).all() or np.abs(whole).max(initial=0) > np.iinfo(np.int16).max // 2:
        raise ValueError(f"values must be finite and below {2**14 * step:g} in magnitude for a step of {step:g}.")
    steps = whole.astype(np.int16)
    if steps.ndim == 3:
        steps = np.diff(steps, axis=2, prepend=np.int16(0))
    # Store columns one after the other, with low and high bytes separated, because only the high bytes repeat.
    columns = np.ascontiguousarray(np.moveaxis(steps, 0, -1)).view(np.uint8).reshape(-1, 2)
    return np.frombuffer(lzma.compress(np.ascontiguousarray(columns.T).tobytes(), preset=6), np.uint8)


def unpack(packed: Bytes, shape: tuple[int, ...], step: float) -> NDArray[np.float32]:
    halves = np.frombuffer(lzma.decompress(np.asarray(packed).tobytes()), np.uint8).reshape(2, -1)
    columns = np.ascontiguousarray(halves.T).view(np.int16).reshape(*shape[1:], shape[0])
    steps = np.moveaxis(columns, -1, 0)
    if len(shape) == 3:
        steps = np.cumsum(steps, axis=2, dtype=np.int16)
    return np.ascontiguousarray(steps, dtype=np.float32) * np.float32(step)
