"""Read files of outputs whose columns or arrays may have any names: one file, or the shards of a data set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from densecal.errors import listed
from densecal.io import output_files
from densecal.io.file_layout import DEFAULT_LAYOUT, FileLayout
from densecal.io.tables import TABLE_SUFFIXES
from densecal.outputs import Outputs, make_outputs, name_file_in_errors
from densecal.progress import track

SUFFIXES_IN_FOLDERS = (".safetensors", ".npz", *TABLE_SUFFIXES)


class LoadedFile(NamedTuple):
    """The outputs of a file, and what only whoever writes a result about them needs."""

    outputs: Outputs
    ids: Any
    classes: tuple[str, ...]
    probability_floor: float | None


def read_file(path: str | Path, layout: FileLayout = DEFAULT_LAYOUT) -> LoadedFile:
    """Read one file or folder of arrays, and check its logits."""
    content = output_files.read(path, layout)
    # The logarithms of probabilities are logits, whatever they look like.
    outputs = make_outputs(path, content, assume_logits=layout.assume_logits or layout.probabilities)
    with name_file_in_errors(path):
        outputs.checked_logits()
    return LoadedFile(outputs, content.ids, content.classes, content.probability_floor)


def read_shards(paths: Sequence[Path], layout: FileLayout = DEFAULT_LAYOUT) -> LoadedFile:
    """Read the files of one data set; the first says what the classes are and what stands for a probability of zero."""
    loaded: list[LoadedFile] = []
    for path in track(paths, "reading") if len(paths) > 1 else paths:
        loaded.append(read_file(path, layout))
        layout = layout.following(loaded[0].classes, loaded[0].probability_floor)
    first = loaded[0]
    if len(loaded) == 1:
        return first
    with name_file_in_errors(listed([str(path) for path in paths])):
        outputs = Outputs.concatenate([one.outputs for one in loaded])
    ids = None if first.ids is None else np.concatenate([one.ids for one in loaded])
    return first._replace(outputs=outputs, ids=ids)


def read_outputs(path: str | Path, layout: FileLayout = DEFAULT_LAYOUT) -> Outputs:
    """Read the outputs of one file, and check their logits."""
    return read_file(path, layout).outputs


def require_labels(outputs: Outputs, path: str | Path, why: str) -> Outputs:
    """Return the outputs if they have labels; otherwise raise with the content of the file and the reason ``why``."""
    if outputs.labels is None:
        names = listed(output_files.array_names(Path(path)))
        raise ValueError(
            f"{path} has no labels{names and f', only {names}'}: {why} Name the array labels (in a table the column "
            "label), or say which it is: --labels NAME."
        )
    return outputs


def expand(sources: Sequence[Path]) -> list[Path]:
    """Return the files of folders, and of patterns that no shell has expanded, in alphabetical order."""
    files: list[Path] = []
    for source in sources:
        if source.is_dir() and not (source / "logits.npy").exists():
            found = sorted(file for file in source.iterdir() if is_outputs(file))
            if not found:
                raise ValueError(
                    f"{source} holds no outputs: expected files that end in {', '.join(SUFFIXES_IN_FOLDERS)}, or "
                    "folders with logits.npy."
                )
            files += found
        elif not source.exists() and "*" in source.name:
            files += sorted(source.parent.glob(source.name)) or [source]
        else:
            files.append(source)
    return files


def is_outputs(file: Path) -> bool:
    """Return whether a file in a folder counts as one of outputs, by its suffix."""
    return file.suffix.lower() in SUFFIXES_IN_FOLDERS or (file / "logits.npy").exists()
