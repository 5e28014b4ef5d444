"""Paths on a command line: the files they stand for, each of which is read once in its role or written."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from densecal.cli.inputs import UsageError


def expand(option: str, sources: Sequence[Path]) -> list[Path]:
    """Expand folders, and patterns that the shell did not expand, to the files of an option, in order.

    A missing shard is an error, and so is a file that occurs twice.
    """
    from densecal.outputs.shards import group_shards

    files = [file for source in sources for group in group_shards(source) for file in group]
    check_given_once(option, files)
    return files


def check_given_once(option: str, paths: Sequence[Path]) -> None:
    """Raise if two paths of an option are the same file."""
    seen: dict[str, Path] = {}
    for path in paths:
        first = seen.get(os.path.realpath(path))
        if first is not None:
            found = f"{path} twice" if first == path else f"one file twice, as {first} and as {path}"
            raise UsageError(f"{option} names {found}. Pass each file once: folders and patterns must not overlap.")
        seen[os.path.realpath(path)] = path


def check_outputs(outputs: Mapping[str, Path | None], inputs: Mapping[str, Sequence[Path]]) -> None:
    """Raise if a file to write is one to read, lies in a folder to read, or is also written by another option.

    Both map an option, or another name of the role, to its paths.
    """
    read = [(role, path, os.path.realpath(path)) for role, paths in inputs.items() for path in paths]
    for option, output in outputs.items():
        if output is None:
            continue
        target = os.path.realpath(output)
        folders = {target, *map(str, Path(target).parents)}
        for role, path, source in read:
            if source == target or (source in folders and path.is_dir()):
                raise UsageError(f"{option} {output} would overwrite {role} {path}. Write to another file.")
        read.append((option, output, target))
