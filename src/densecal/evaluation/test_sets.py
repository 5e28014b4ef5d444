"""The sets that a user gives: files of outputs, what they are called, and how far they have moved.

Commands start at once, so the heavy imports wait inside the functions.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from densecal.calibrators.base import Calibrator
    from densecal.evaluation import Condition
    from densecal.outputs import Outputs

FILES = "a .safetensors, .npz or .csv file or a folder of .npy, with arrays logits, labels, features/LAYER"
SUFFIXES = (".safetensors", ".npz")
FROM_FACTS, FROM_NAME, NOWHERE = "metadata", "name", "none"
UNNAMED_SHIFT = "shift"
STRONGEST = 5
FEW = 16


@dataclass(frozen=True, eq=False)
class GivenSet:
    """A condition, the file it lies in, and where its severity was read."""

    condition: Condition
    path: Path
    severity_from: str


@contextmanager
def about(path: Path) -> Iterator[None]:
    """Name the file in whatever turns out to be wrong with its content."""
    try:
        yield
    except (ValueError, TypeError) as error:
        if str(path) in str(error):
            raise
        raise type(error)(f"{path}: {error}") from error


def read_outputs(path: Path) -> Outputs:
    """Read outputs whose logits can be logits; an error names the file."""
    from densecal.arrays.checks import check_logits
    from densecal.outputs import Outputs

    outputs = Outputs.load(path)
    with about(path):
        check_logits(outputs.logits)
    return outputs


def read_labelled(path: Path, why: str) -> Outputs:
    """Read outputs that must have labels, or say what the file has instead."""
    outputs = read_outputs(path)
    if outputs.labels is None:
        raise ValueError(_no_labels(path, why))
    return outputs


def _no_labels(path: Path, why: str) -> str:
    from densecal.io.output_files import listed, read

    return (
        f"{path} holds no labels, only {listed(list(read(path)[0]))}: {why} Name the array labels (in a .csv file the "
        "column label)."
    )


def read_sets(sources: Sequence[str], *, out_of_domain: bool = False) -> list[GivenSet]:
    """Read test sets from files and folders, in the order of their severity.

    The metadata in a file say what happened to its data and how strongly. Without them a severity is read only from names
    that can mean nothing else: ``fog-severity-3``, ``sev3``, a known corruption as ``fog-3``, or ``test-1`` beside
    ``test-3``. Any other set has severity 0 and the name of its file; ``NAME=PATH`` gives another name.
    """
    from densecal.evaluation import Condition

    files = [found for source in sources for found in _files_of(source)]
    if not files:
        raise ValueError(f"No outputs were found in {', '.join(sources)}.")
    loaded = [read_outputs(path) for _, path, _ in files]
    unknown = [name for (name, _, _), outputs in zip(files, loaded, strict=True) if "severity" not in outputs.metadata]
    stems = _series(unknown)
    sets: list[GivenSet] = []
    for (name, path, named), outputs in zip(files, loaded, strict=True):
        if out_of_domain:
            called = name if named else outputs.metadata.get("condition", name)
            condition = Condition(called, outputs, out_of_domain=True)
            sets.append(GivenSet(condition, path, NOWHERE))
        else:
            sets.append(_one_set(name, path, outputs, stems, named=named))
    _refuse_twins(sets)
    return sorted(sets, key=lambda one: (one.condition.out_of_domain, one.condition.severity))


def _one_set(name: str, path: Path, outputs: Outputs, stems: set[str], *, named: bool) -> GivenSet:
    from densecal.evaluation import Condition

    stem, number = _read_name(name, stems)
    metadata = outputs.metadata
    if (
        outputs.labels is None
        and metadata.get("role") != "ood"
        and "ood" not in metadata.get("condition", name).lower()
    ):
        raise ValueError(_no_labels(path, "without them nobody can say how honest its confidences are."))
    with about(path):
        condition = Condition.from_outputs(outputs, stem)
    if named:
        condition = replace(condition, name=stem)
    if "severity" in metadata:
        return GivenSet(condition, path, FROM_FACTS)
    if number is None or condition.out_of_domain:
        return GivenSet(condition, path, NOWHERE)
    return GivenSet(replace(condition, severity=number), path, FROM_NAME)


def _read_name(name: str, stems: set[str]) -> tuple[str, int | None]:
    """Split a name into what happened and how strongly, where it says so."""
    from densecal.shift.corruptions.constants import CORRUPTIONS

    explicit = re.fullmatch(r"(?:(.+)[-_ ])?sev(?:erity)?[-_ ]?(\d+)", name, re.IGNORECASE)
    if explicit:
        return explicit[1] or UNNAMED_SHIFT, int(explicit[2])
    corruption = re.fullmatch(rf"(.+)[-_ ]([0-{STRONGEST}])", name)
    if corruption and re.sub(r"[- ]", "_", corruption[1].lower()) in CORRUPTIONS:
        return corruption[1], int(corruption[2])
    series = _SERIES.fullmatch(name)
    if series and series[1] in stems:
        return series[1], int(series[2])
    return name, None


_SERIES = re.compile(rf"(.+)-([0-{STRONGEST}])")
_COUNTED = re.compile(r"(?:.*[-_ ])?(?:fold|split|part|batch|shard|set|run|seed|trial|\d{4})", re.IGNORECASE)
"""Stems whose numbers tell equals apart: parts of a set, runs, months of a year."""


def _series(names: Iterable[str]) -> set[str]:
    """Return the stems that several names share with different numbers: test-1 and test-3, but no lone test-3.

    Examples
    --------
    >>> _series(["night-1", "night-2", "test-3", "fold-1", "fold-2", "hospital_1", "hospital_2"])
    {'night'}
    """
    numbers: dict[str, set[str]] = defaultdict(set)
    for name in names:
        match = _SERIES.fullmatch(name)
        if match and not _COUNTED.fullmatch(match[1]):
            numbers[match[1]].add(match[2])
    return {stem for stem, found in numbers.items() if len(found) > 1}


def _files_of(source: str) -> Iterator[tuple[str, Path, bool]]:
    """Give each set's name, its path, and whether the user chose the name."""
    name, _, after = source.partition("=")
    renamed = bool(after) and not Path(source).exists()
    path = Path(after) if renamed else Path(source)
    if not path.is_dir() or (path / "logits.npy").exists():
        yield name if renamed else _name_of(path), path, renamed
        return
    files = sorted(file for file in path.iterdir() if file.suffix in SUFFIXES or (file / "logits.npy").exists())
    if not files:
        raise ValueError(
            f"{path} holds no outputs: expected .safetensors or .npz files, or folders with logits.npy, in it."
        )
    yield from ((_name_of(file), file, False) for file in files)


def _name_of(path: Path) -> str:
    return path.name if path.is_dir() else path.stem


def _refuse_twins(sets: Sequence[GivenSet]) -> None:
    seen: dict[str, Path] = {}
    for one in sets:
        name = str(one.condition)
        if name in seen:
            raise ValueError(
                f"{seen[name]} and {one.path} are both called '{name}'. Give them names: --data first={seen[name]} "
                f"--data second={one.path}."
            )
        seen[name] = one.path


def check_sets(sets: Iterable[GivenSet], calibrators: Iterable[Calibrator]) -> None:
    """Let every calibrator answer a few samples of each set, so that what does not fit is said with its file's name."""
    calibrators = list(calibrators)
    for one in sets:
        with about(one.path):
            first = one.condition.outputs[:FEW]
            for calibrator in calibrators:
                calibrator.predict_proba(first.logits, features=first.features or None)


def severity_line(sets: Sequence[GivenSet]) -> str:
    """Say in one line what was read as a severity, and where."""
    from densecal.io.output_files import listed

    judged = [one for one in sets if not one.condition.out_of_domain]
    parts = []
    by_name = [f"{one.path.name} → {one.condition.severity}" for one in judged if one.severity_from == FROM_NAME]
    if by_name:
        parts.append(f"from names: {listed(by_name)}")
    by_facts = [one for one in judged if one.severity_from == FROM_FACTS]
    if by_facts:
        parts.append(f"from the metadata in the files: {listed([str(one.condition.severity) for one in by_facts])}")
    none = [one.condition.name for one in judged if one.severity_from == NOWHERE]
    if none:
        parts.append(f"none given, so 0 (in-domain): {listed(none)}")
    return f"Severities {'; '.join(parts)}."


def sets_as_json(sets: Iterable[GivenSet]) -> list[dict[str, Any]]:
    """Return what was read, as plain data."""
    return [
        {
            "name": one.condition.name,
            "path": one.path,
            "severity": one.condition.severity,
            "severity_from": one.severity_from,
            "out_of_domain": one.condition.out_of_domain,
            "samples": len(one.condition.outputs),
        }
        for one in sets
    ]
