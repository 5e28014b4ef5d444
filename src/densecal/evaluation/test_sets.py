"""Read conditions from files of outputs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

from densecal.evaluation.conditions import Condition, role_of
from densecal.evaluation.severity_names import series_stems, split_severity
from densecal.io import output_files
from densecal.io.atomic_files import listed, name_file_in_errors, split_name
from densecal.io.output_files import DEFAULT_LAYOUT, FileLayout
from densecal.outputs import Outputs, OutputShards, make_outputs
from densecal.outputs.shards import group_shards, shard_of

SeverityFrom = Literal["metadata", "name", "none"]


@dataclass(frozen=True, eq=False)
class LoadedSet:
    """A condition, its file and the origin of its severity."""

    condition: Condition
    path: Path
    severity_from: SeverityFrom

    def to_dict(self) -> dict[str, object]:
        """Return the set as plain data, without its outputs."""
        return {
            "name": self.condition.name,
            "path": self.path,
            "severity": None if self.condition.natural else self.condition.severity,
            "natural": self.condition.natural,
            "severity_from": self.severity_from,
            "out_of_domain": self.condition.out_of_domain,
            "n_samples": self.condition.n_samples,
        }


class _File(NamedTuple):
    name: str
    path: Path
    named_by_user: bool
    shards: tuple[Path, ...] = ()

    def read(self, layout: FileLayout) -> Outputs | OutputShards:
        if self.shards:
            return OutputShards(self.shards, layout)
        outputs = make_outputs(self.path, output_files.read(self.path, layout))
        with name_file_in_errors(self.path):
            outputs.checked_logits()
        return outputs


def read_conditions(
    sources: Sequence[str | Path],
    *,
    out_of_domain: bool = False,
    natural: bool = False,
    severity_from_names: bool = True,
    assume_logits: bool = False,
) -> list[Condition]:
    """Read conditions from files and folders, ordered by severity.

    Parameters
    ----------
    sources : sequence of str or path
        Files or folders that `Outputs.load` reads, folders of such files (several conditions), or ``NAME=PATH``. Files
        named ``fog-3-00000-of-00002.safetensors``, ... are shards of one condition, which is read in batches.
    out_of_domain : bool, default False
        Whether the samples belong to none of the classes.
    natural : bool, default False
        Whether the shifts are natural ones, of unknown severity.
    severity_from_names : bool, default True
        Whether to read the severity from ``NAME=`` or the file name if the metadata has none. The forms are
        ``rain-severity-3``, ``sev3``, a known corruption such as ``fog-3``, and series such as ``rain-1``, ``rain-3``
        with all numbers in 0 ... 5, unless the name is that of times, places or folds (``week-1``).
    assume_logits : bool, default False
        Whether to accept logits that look like probabilities.

    Returns
    -------
    list of Condition
        Name and severity come from the metadata or else from the file name; ``NAME=`` overrides the name. The default
        severity is 0.

    Examples
    --------
    >>> import tempfile
    >>> from densecal import Outputs
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Outputs([[2.0, 1.0]], labels=[0]).save(f"{folder}/fog-3.safetensors")
    ...     print(*read_conditions([folder]))
    fog, severity 3
    """
    sets = read_sets(
        sources,
        out_of_domain=out_of_domain,
        natural=natural,
        severity_from_names=severity_from_names,
        layout=FileLayout(assume_logits=assume_logits),
    )
    return [one.condition for one in sets]


def read_sets(
    sources: Sequence[str | Path],
    *,
    out_of_domain: bool = False,
    natural: bool = False,
    severity_from_names: bool = True,
    layout: FileLayout = DEFAULT_LAYOUT,
) -> list[LoadedSet]:
    """Read conditions like `read_conditions`, with the path and the origin of the severity of each."""
    files = [file for source in sources for file in _list_files(str(source))]
    if not files:
        raise ValueError("sources must hold at least one test set, got none.")
    loaded = [(file, file.read(layout)) for file in files]
    stems = series_stems(file.name for file, outputs in loaded if "severity" not in outputs.metadata)
    sets = []
    for file, outputs in loaded:
        role = role_of(outputs, out_of_domain, natural)
        if role != "ood":
            where = file.shards[0] if file.shards else file.path
            output_files.require_labels(where, outputs.has_labels, "labels are needed to measure calibration.")
        graded = role not in ("ood", "natural")
        name, severity = split_severity(file.name, stems) if graded and severity_from_names else (file.name, None)
        with name_file_in_errors(file.path):
            condition = Condition.from_outputs(
                outputs, name=name, severity=severity or 0, out_of_domain=out_of_domain, natural=natural
            )
        if file.named_by_user:
            condition = replace(condition, name=name)
        from_metadata = graded and "severity" in outputs.metadata
        origin: SeverityFrom = "metadata" if from_metadata else "none" if severity is None else "name"
        sets.append(LoadedSet(condition, file.path, origin))
    check_unique(sets)
    return sorted(sets, key=lambda one: (one.condition.out_of_domain, one.condition.natural, one.condition.severity))


def _list_files(source: str) -> Iterator[_File]:
    name, path = split_name(source)
    groups = group_shards(path)
    name = name if len(groups) == 1 else None
    for group in groups:
        stem, first = shard_of(group[0]), group[0]
        own = stem or (first.name if first.is_dir() else first.stem)
        shards = () if stem is None else tuple(group)
        path = first.with_name(f"{stem}-*") if shards else first
        yield _File(own if name is None else name, path, name is not None, shards)


def check_unique(sets: Iterable[LoadedSet]) -> None:
    """Raise if two sets have the same name and severity."""
    seen: dict[str, Path] = {}
    for one in sets:
        name = str(one.condition)
        if name in seen:
            raise ValueError(
                f"{seen[name]} and {one.path} are both named '{name}'. Pass different names: first={seen[name]} and "
                f"second={one.path}."
            )
        seen[name] = one.path


def severity_line(sets: Iterable[LoadedSet]) -> str:
    """Return one line with the origin of each severity, and the natural shifts, which have none."""
    sets = [one for one in sets if not one.condition.out_of_domain]
    labelled = [one for one in sets if not one.condition.natural]
    origins = {
        "from names": [
            f"{one.path.name} → {one.condition.severity}" for one in labelled if one.severity_from == "name"
        ],
        "from the metadata in the files": [
            str(one.condition.severity) for one in labelled if one.severity_from == "metadata"
        ],
        "none given, so 0 (in-domain)": [one.condition.name for one in labelled if one.severity_from == "none"],
    }
    parts = [f"{origin}: {listed(found)}" for origin, found in origins.items() if found]
    natural = [one.condition.name for one in sets if one.condition.natural]
    line = f"Severity: {'; '.join(parts)}." + (
        f" Natural shifts, without a severity: {listed(natural)}." * bool(natural)
    )
    clean = [one for one in labelled if one.condition.severity == 0]
    pooled = len(clean) > 1 and any(one.severity_from == "none" for one in clean)
    advice = "Name severities, as in rain-severity-3=FILE. Pass natural shifts with --natural."
    return f"{line} Sets of one severity are averaged. {advice}" if pooled else line
