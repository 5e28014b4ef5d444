"""Files of outputs: their names, their formats, and the content of their arrays or columns."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from glob import has_magic
from pathlib import Path
from typing import Any, BinaryIO, Self

import numpy as np

from densecal.errors import ArtefactError, warn_user
from densecal.io import safetensors_file
from densecal.io.array_files import METADATA, OBJECTS, advise, check_writable, read_folder, read_npz
from densecal.io.atomic_files import atomic_write, listed, name_file_in_errors, open_file
from densecal.io.classes import check_named_classes, class_difference, encode_labels, fill_missing, reorder
from densecal.io.scores import as_logits
from densecal.io.tables import TABLE_SUFFIXES, is_missing, read_table, warn_if_repeated

SUFFIXES = (".safetensors", ".npz", *TABLE_SUFFIXES)
FORMAT = "densecal.outputs"
_SIGNATURES = {b"PK\x03\x04": ".npz", b"\x93NUMPY": ".npy", b"PAR1": ".parquet", b"\x80": ".pkl"}
EXPECTED = "Expected names: logits, labels and features/LAYER. Otherwise say which they are: --scores, --labels, --id."
FEATURE_PREFIX = "features/"


@dataclass(frozen=True)
class FileLayout:
    """The content of the columns of a table, or of the arrays of a file. By default, the names that densecal writes.

    ``scores`` lists columns, separated by commas, or is a pattern such as ``p_*``; for arrays it is the name of one.
    ``score_classes`` are the class names in the order of the scores, given by the user. ``classes`` are those of the
    calibrator or of data that were read before; the scores are read in this order, whatever the order in the file.
    ``probability_floor`` replaces probabilities of zero. ``percentages`` is the scale of single probabilities in the
    fit or in earlier data, None if it is unknown. With ``fitted_on_logits``, the calibrator was fitted on logits. With
    ``partial_labels``, labels may be missing.
    """

    scores: str | None = None
    labels: str | None = None
    id: str | None = None
    score_classes: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    probabilities: bool = False
    probability_floor: float | None = None
    percentages: bool | None = None
    delimiter: str | None = None
    decimal: str = "."
    assume_logits: bool = False
    fitted_on_logits: bool = False
    partial_labels: bool = False

    def following(self, content: FileContent) -> Self:
        """Return the layout with the probability floor and, unless known, the classes and the scale of earlier data."""
        percentages = content.percentages if self.percentages is None else self.percentages
        classes = self.classes or content.classes
        return replace(self, classes=classes, probability_floor=content.probability_floor, percentages=percentages)

    def for_calibrator(self, metadata: Mapping[str, Any]) -> Self:
        """Return the layout with the classes, the probability floor and the scale of the fit, from its metadata.

        Raise if the calibrator was fitted on probabilities and would get logits.
        """
        fit = metadata.get("sklearn", metadata)
        classes = tuple(str(name) for name in fit.get("classes", ()))
        if classes and self.score_classes and set(classes) != set(self.score_classes):
            different = class_difference(self.score_classes, classes)
            raise ValueError(f"--classes must name those of the calibrator: {different}")
        floor = fit.get("probability_floor")
        if floor is not None and not (self.probabilities or self.assume_logits):
            raise ValueError(
                "the calibrator was fitted on probabilities, but the scores are to be read as logits. Pass "
                "--probabilities or, if they are logits or log-probabilities, --assume-logits."
            )
        of_fit = {"probability_floor": floor, "percentages": fit.get("percentages"), "fitted_on_logits": floor is None}
        return replace(self, classes=self.classes or classes or self.score_classes, **of_fit)


DEFAULT_LAYOUT = FileLayout()


@dataclass(frozen=True)
class FileContent:
    """The content of a file of outputs. It has ``partial_labels``, and no labels, if some labels are missing."""

    logits: Any
    labels: Any = None
    features: Mapping[str, Any] = field(default_factory=dict)
    ids: Any = None
    classes: tuple[str, ...] = ()
    probability_floor: float | None = None
    percentages: bool | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    assume_logits: bool = False
    partial_labels: Any = None


def list_outputs(source: str | Path) -> list[Path]:
    """Return the files of a folder or a pattern in natural order, part-2 before part-10, or the file itself."""
    path = Path(source)
    if path.is_dir() and not (path / "logits.npy").exists():
        files = [file for file in path.iterdir() if _is_outputs(file)]
        if not files:
            raise ValueError(
                f"{path} holds no outputs: expected files that end in {', '.join(SUFFIXES)}, or folders with "
                "logits.npy."
            )
    elif has_magic(str(path)) and not path.exists():
        anchor = Path(path.anchor)
        files = [file for file in anchor.glob(str(path.relative_to(anchor))) if _is_outputs(file)] or [path]
    else:
        files = [path]
    return sorted(files, key=natural_order)


def _is_outputs(path: Path) -> bool:
    """Return whether a file in a folder has the name of a file of outputs."""
    return (path.suffix.lower() in SUFFIXES and not path.name.startswith(".")) or (path / "logits.npy").exists()


def natural_order(path: str | Path) -> list[tuple[int, str]]:
    """Return a key that sorts by the numbers in names: part-2 before part-10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", str(path))]


def write(path: str | Path, arrays: Mapping[str, Any], metadata: Mapping[str, str]) -> None:
    """Write arrays and metadata as .npz if the path has that suffix, else as safetensors."""
    path = check_writable(path)
    if path.suffix.lower() == ".npz":
        with atomic_write(path) as temporary, temporary.open("wb") as file:
            np.savez(file, **{**arrays, METADATA: np.array(json.dumps(dict(metadata)))})
        return
    layers = [name.removeprefix(FEATURE_PREFIX) for name in arrays if name.startswith(FEATURE_PREFIX)]
    safetensors_file.write(path, {"format": FORMAT, "version": 1, "layers": layers, METADATA: dict(metadata)}, arrays)


def read(
    path: str | Path, layout: FileLayout = DEFAULT_LAYOUT, max_bytes: int | None = None, *, verify: bool = True
) -> FileContent:
    """Return the content of a file or folder of outputs.

    Without ``verify``, the checksum of a safetensors file is not computed: only its header is read at once.
    """
    path = Path(path)
    if path.suffix.lower() in TABLE_SUFFIXES and path.is_file():
        with open_file(path) as file:
            _check_suffix(path, sniff_format(file), path.suffix.lower())
            table = read_table(path, file, layout)
        return interpret(path, table, None, replace(layout, scores=None, labels=None, id=None))
    return interpret(path, *_read_arrays(path, max_bytes, verify=verify), layout)


def require_labels(path: Path, has_labels: bool, why: str) -> None:
    """Raise unless the outputs of a file have labels, with the content of the file and the reason ``why``."""
    if not has_labels:
        is_table = path.suffix.lower() in TABLE_SUFFIXES or not path.exists()
        names = "" if is_table else f", only {listed(list(_read_arrays(path, None, verify=False)[0]))}"
        raise ValueError(
            f"{path} has no labels{names}: {why} Name the array labels (in a table the column label), or say which it "
            "is: --labels NAME."
        )


def _read_arrays(path: Path, max_bytes: int | None, *, verify: bool) -> tuple[dict[str, Any], dict[str, str] | None]:
    """Return the arrays by name, in the order of the layers, and the metadata; None if densecal did not write them."""
    if path.is_dir():
        return read_folder(path), None
    suffix = path.suffix.lower()
    with open_file(path) as file:
        held = sniff_format(file)
        if suffix in (".npz", ".safetensors"):
            _check_suffix(path, held, suffix)
        elif held != ".safetensors":
            raise ArtefactError(advise(path, suffix))
        if suffix == ".npz":
            arrays, metadata = read_npz(path, file, max_bytes)
            return arrays, None if metadata is None else _check_metadata(path, metadata)
    return _read_safetensors(path, verify)


def sniff_format(file: BinaryIO) -> str | None:
    """Return the suffix that matches the first bytes of a file, or None if they match no known format."""
    start = file.read(9)
    file.seek(0)
    # A brace alone proves nothing: the high bytes of the header's length, which is limited, must be zero as well.
    if start[4:] == b"\0\0\0\0{":
        return ".safetensors"
    return next((suffix for signature, suffix in _SIGNATURES.items() if start.startswith(signature)), None)


def _check_suffix(path: Path, held: str | None, suffix: str) -> None:
    if held in (".safetensors", ".npz") and held != suffix:
        raise ArtefactError(
            f"{path} is named {suffix} but holds a {held} file. Rename it to {path.with_suffix(held).name}."
        )
    if held not in (None, suffix):
        raise ArtefactError(f"{path} is named {suffix} but holds something else. {advise(path, held)}")


def _check_metadata(path: Path, metadata: Any) -> dict[str, str]:
    if not isinstance(metadata, dict):
        raise ArtefactError(f"{path} is damaged: its metadata must map names to strings.")
    return {name: str(value) for name, value in metadata.items()}


def _read_safetensors(path: Path, verify: bool) -> tuple[dict[str, Any], dict[str, str] | None]:
    header, arrays = safetensors_file.read(path, verify=verify)
    if not header:
        return arrays, None
    safetensors_file.check_format(path, header, FORMAT)
    layers = header.get("layers")
    named = [f"{FEATURE_PREFIX}{one}" for one in layers] if isinstance(layers, list) else None
    if named is None or {*arrays} - {"labels"} != {"logits", *named}:
        raise ArtefactError(f"{path} is damaged: it lists the layers {layers}, but has the arrays {listed([*arrays])}.")
    order = ["logits", *(["labels"] if "labels" in arrays else []), *named]
    return {name: arrays[name] for name in order}, _check_metadata(path, header.get(METADATA, {}))


def interpret(path: Path, arrays: dict[str, Any], metadata: dict[str, str] | None, layout: FileLayout) -> FileContent:
    """Return the content of the arrays of a file; warn about arrays that are not used."""
    left = dict(arrays)
    features = {name.removeprefix(FEATURE_PREFIX): left.pop(name) for name in arrays if name.startswith(FEATURE_PREFIX)}
    usual = "probabilities" if layout.probabilities and "logits" not in left else "logits"
    scores = _pop(path, left, layout.scores or usual)
    labels = _pop(path, left, layout.labels) if layout.labels else left.pop("labels", None)
    ids = _pop(path, left, layout.id) if layout.id else left.pop("ids", None)
    if np.ndim(ids) == 1:
        warn_if_repeated(path, ids)
    named = tuple(str(one) for one in np.ravel(left.pop("classes", ())))
    if objects := [name for name, array in arrays.items() if array is OBJECTS and name not in left]:
        raise ArtefactError(
            f"{path}: the array {objects[0]!r} holds Python objects. Convert numbers first: array.astype(float), and "
            "labels or ids: array.astype(str), or array.astype(int) for integers."
        )
    is_single = scores.ndim == 1 or (scores.ndim == 2 and scores.shape[1] == 1)
    logits, floor, percentages = scores, None, None
    if is_single or layout.probabilities:
        logits, floor, percentages = as_logits(path, scores, layout, is_single=is_single)
    order = check_named_classes(path, named, layout) if named else layout.score_classes or layout.classes
    if order and logits.ndim == 2 and len(order) != logits.shape[1]:
        raise ArtefactError(f"{path} has scores of {logits.shape[1]} classes, but the classes are {listed(order)}.")
    classes = layout.classes or order
    has_label = None
    if labels is not None and np.ndim(labels) == 1 and layout.partial_labels and is_missing(labels).any():
        has_label = ~is_missing(labels)
        labels = labels[has_label]
    # The labels that densecal writes are positions, also where classes are named by numbers.
    names = order if metadata is None or layout.labels not in (None, "labels") else ()
    if labels is not None and (names or labels.dtype.kind not in "biuf"):
        labels = encode_labels(path, labels, names)
    if order != classes:
        logits, labels = reorder(logits, labels, [order.index(name) for name in classes])
    partial = None
    if has_label is not None:
        with name_file_in_errors(path):
            labels, partial = None, fill_missing(labels, has_label, logits.shape[1])
    if left:
        warn_user(f"{path}: {listed(sorted(left))} {'is' if len(left) == 1 else 'are'} ignored. {EXPECTED}")
    # The logarithms of probabilities are logits, whatever their values.
    assume_logits = layout.assume_logits or layout.probabilities
    metadata = metadata or {}
    return FileContent(
        logits, labels, features, ids, classes, floor, percentages, metadata, assume_logits, partial_labels=partial
    )


def _pop(path: Path, arrays: dict[str, Any], name: str) -> Any:
    if name not in arrays:
        raise ArtefactError(
            f"{path} has no array named {name!r}, only {listed(sorted(arrays)) or 'nothing'}. {EXPECTED}"
        )
    return arrays.pop(name)
