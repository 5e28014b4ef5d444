"""Which files of outputs are shards of one data set, by their names."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from glob import has_magic
from pathlib import Path

from densecal.errors import listed
from densecal.io.tables import TABLE_SUFFIXES

SUFFIXES = (".safetensors", ".npz", *TABLE_SUFFIXES)
_NAME = re.compile(r"(.+)-(\d+)-of-(\d+)")
SHARD_SIZE = 8192
"""Samples per file, if nothing else is said: of 1,000 classes and 2,000 features, 65 MB."""


def shard_name(name: str, index: int, count: int, suffix: str = ".safetensors") -> str:
    """Return the file name of one of ``count`` shards of the data set ``name``; the first has the index 0.

    Examples
    --------
    >>> shard_name("test", 3, 10)
    'test-00003-of-00010.safetensors'
    """
    if not 0 <= index < count:
        raise ValueError(f"index must lie in 0 ... {count - 1} for {count} shards, got {index}.")
    return f"{name}-{index:05}-of-{count:05}{suffix}"


def shard_of(path: Path) -> str | None:
    """Return the name of the data set of which the file is a shard, or None if it is not named like one."""
    match = _NAME.fullmatch(path.stem)
    return match[1] if match else None


def list_outputs(source: str | Path) -> list[Path]:
    """Return the files of a folder or a pattern in natural order, part-2 before part-10; a file is itself."""
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
    return sorted(files, key=_natural)


def group_shards(files: Sequence[Path], source: str | Path) -> list[list[Path]]:
    """Return the files of each data set: the shards of one together and in order, any other file alone."""
    groups: dict[str, list[Path]] = defaultdict(list)
    for file in files:
        name = shard_of(file)
        groups[str(file) if name is None else name].append(file)
    complete = list(files) != [Path(source)]  # a file that is given by itself may be one of several shards
    return [check_shards(group, source, complete=complete) for group in groups.values()]


def find_shards(source: str | Path | Sequence[str | Path]) -> list[Path]:
    """Return the files of one data set in order; raise if shards are missing, are there twice or are of several."""
    if not isinstance(source, (str, Path)):
        files = [Path(path) for path in source]
        if not files:
            raise ValueError("source must hold at least one file, got none.")
        check_shards(files, "The sequence of files", complete=False)
        return files
    files = list_outputs(source)
    return check_shards(files, source, complete=files != [Path(source)])


def check_shards(files: Sequence[Path], source: str | Path, *, complete: bool = True) -> list[Path]:
    """Return the files in the order of their numbers; raise unless they are the shards of one data set, each once."""
    found = {path: _NAME.fullmatch(path.stem) for path in files}
    names = {match[1] if match else "" for match in found.values()}
    if names == {""}:
        return list(found)
    if len(names) > 1:
        listing = listed(sorted(name or "files without a number" for name in names))
        raise ValueError(f"{source} holds shards of different data sets: {listing}. Pass a pattern for one of them.")
    totals = {int(match[3]) for match in found.values() if match}
    if len(totals) > 1:
        raise ValueError(f"{source} holds shards of different runs, which wrote {sorted(totals)} shards each.")
    total, by_number = totals.pop(), {int(match[2]): path for path, match in found.items() if match}
    if len(by_number) < len(files):
        twice = next(path for path, match in found.items() if match and by_number[int(match[2])] != path)
        raise ValueError(f"{source} holds the shard {twice.stem} twice. Remove one of the files.")
    missing = [str(number) for number in range(total) if number not in by_number]
    if max(by_number) >= total or (missing and complete):
        raise ValueError(
            f"{source} holds {len(by_number)} of {total} shards of {names.pop()}; missing: {listed(missing)}. Write "
            "them, or pass the files one by one to go without them."
        )
    return [by_number[number] for number in sorted(by_number)]


def _is_outputs(path: Path) -> bool:
    """Return whether a file in a folder is one of outputs, by its name."""
    return (path.suffix.lower() in SUFFIXES and not path.name.startswith(".")) or (path / "logits.npy").exists()


def _natural(path: Path) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", str(path))]
