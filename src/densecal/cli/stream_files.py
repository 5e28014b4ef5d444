"""The monitor of a command and its files: a state, data in chronological order, and labels that arrive later."""

from __future__ import annotations

import warnings
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path

from densecal.arrays import data_hash
from densecal.calibrators.base import Calibrator
from densecal.cli.inputs import UsageError
from densecal.display import track
from densecal.errors import ArtefactError, CalibrationWarning, NoSamplesError, warn_user
from densecal.io.atomic_files import listed, name_file_in_errors
from densecal.io.classes import encode_labels
from densecal.io.output_files import FileLayout
from densecal.io.tables import read_late_labels, sample_names
from densecal.monitor.batches import observe
from densecal.monitor.monitor import Monitor
from densecal.outputs import OutputShards

SETTINGS = {"window": "--window", "alarm_below": "--alarm-below", "false_alarm_rate": "--false-alarm-rate"}


def open_monitor(
    calibrator: Calibrator, paths: list[Path], layout: FileLayout, state: Path | None, settings: dict[str, float]
) -> Monitor:
    """Return the monitor of a state, or a new one whose windows are as large as the largest file by default."""
    if state is not None and state.exists():
        continued = Monitor.load(state, calibrator)
        own = asdict(continued.settings)
        if different := [name for name, value in settings.items() if own[name] != value]:
            started = ", ".join(f"{SETTINGS[name]} {own[name]}" for name in different)
            raise UsageError(f"{state} was started with {started}. Pass the same, or use another file.")
        return continued
    if "window" not in settings:
        if state is not None:
            raise UsageError("--state needs --window: the number of samples per window, across files.")
        opened = [_open_outputs(path, layout) for path in paths]
        settings = {"window": max(0 if one is None else len(one) for one in opened), **settings}
        if not settings["window"]:
            raise ValueError(f"--data holds no samples: no row in {listed(paths)}.")
    return Monitor(calibrator, **settings)  # type: ignore[arg-type]


def _open_outputs(path: Path, layout: FileLayout, *, verify: bool = False) -> OutputShards | None:
    """Return the outputs of a file, or None with a warning if it has no samples."""
    try:
        return OutputShards([path], layout, verify=verify)
    except NoSamplesError:
        warn_user(f"{path} has no samples and is skipped.")
        return None


def read_stream(watched: Monitor, paths: list[Path], layout: FileLayout, *, close_windows: bool) -> FileLayout:
    """Add the files that the monitor has not read before, and return the layout with their class names."""
    skipped: list[Path] = []
    repeated: list[Path] = []
    for path in track(paths, "reading"):
        with name_file_in_errors(path):
            shards, start = _open_outputs(path, layout, verify=True), 0
            if shards is None:
                continue
            layout = shards.layout
            ids = None if layout.id is None or shards.ids is None else sample_names(path, shards.ids)
            content = _hash_samples(shards, ids)
            known = [not watched.remember(key) for key in (content, f"{content} {path.stem}")]
            if known[1] or (known[0] and ids is not None):
                skipped.append(path)
                continue
            if known[0]:
                repeated.append(path)
            for batch in shards.batches():
                rows = slice(start, start + len(batch))
                observed = observe(watched.calibrator, batch)
                if shards.partial_labels is not None:
                    observed = observed._replace(labels=shards.partial_labels[rows])
                watched.append(observed, ids=None if ids is None else ids[rows], at=path.stem)
                start = rows.stop
        if close_windows:
            watched.close_window()
    if skipped:
        warn_user(f"Skipped, because read before: {listed(skipped)}. Labels that arrived later need --late-labels.")
    if repeated:
        warn_user(
            f"{listed(repeated)} {'has' if len(repeated) == 1 else 'have'} the same outputs as earlier data under "
            "another name. They are counted again. If they are the same samples, pass --id."
        )
    return layout


def _hash_samples(shards: OutputShards, ids: list[str] | None) -> str:
    """Return a hash of the logits, features and ids, which stays the same if labels arrive or the format changes."""
    layers = sorted(shards.layers)
    batches = ((batch.logits, *(batch.features[layer] for layer in layers)) for batch in shards.batches())
    of_arrays = data_hash((array, array[:0]) for arrays in batches for array in arrays)
    return sha256("\n".join([of_arrays, *(ids or ())]).encode()).hexdigest()


def add_labels(watched: Monitor, path: Path, layout: FileLayout) -> None:
    """Add the labels of a file; warn if some of them match no sample that waits for one."""
    ids, labels = read_late_labels(path, layout)
    if labels.dtype.kind not in "biuf" and not layout.classes:
        n_classes = watched.calibrator.stages[-1].n_classes_
        found = listed(sorted(set(map(str, labels))))
        raise ArtefactError(
            f"{path} has the labels {found}, but neither the calibrator nor data of this call name the classes. "
            f"Pass --classes with all {n_classes} names, in the order of the scores."
        )
    with name_file_in_errors(path), warnings.catch_warnings():
        # The message below also covers a file none of whose ids is known.
        warnings.simplefilter("ignore", CalibrationWarning)
        n_found = watched.add_labels(encode_labels(path, labels, layout.classes), ids)
    if n_found < len(ids):
        warn_user(
            f"{path}: {len(ids) - n_found:,} of {len(ids):,} ids match no sample that waits for a label. The sample "
            "was read without --id, already has a label, or is too old."
        )
