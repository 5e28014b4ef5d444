"""``densecal monitor``: estimate the accuracy over time from files of outputs, without labels."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from densecal.cli.app import collect_warnings, open_console, print_json, print_warnings, shown
from densecal.cli.calibrator_files import read_calibrator
from densecal.cli.inputs import FILES, FileOptions, Json, UsageError, with_options
from densecal.cli.paths import expand
from densecal.cli.tables import plain_table
from densecal.display import track

if TYPE_CHECKING:
    from rich.console import Group

    from densecal.calibrators.base import Calibrator
    from densecal.io.output_files import FileLayout
    from densecal.monitor.monitor import Monitor

ALARM = 3
"""Exit status if there is an alarm."""
MAX_WINDOWS_SHOWN = 20
_SETTINGS = {"window": "--window", "alarm_below": "--alarm-below", "false_alarm_rate": "--false-alarm-rate"}


@with_options
def monitor(
    calibrator: Annotated[Path, typer.Argument(help="A calibrator fitted with --shifted.", show_default=False)],
    held: FileOptions,
    files: Annotated[list[Path] | None, typer.Argument(help="Further files of --data.", show_default=False)] = None,
    data: Annotated[list[Path] | None, typer.Option(help=f"Outputs in chronological order: {FILES}.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The HTML page to write.")] = None,
    window: Annotated[int | None, typer.Option(help="Samples per window; by default each file is a window.")] = None,
    alarm_below: Annotated[float | None, typer.Option(help="Alarm below this accuracy; 0.85 by default.")] = None,
    false_alarm_rate: Annotated[
        float | None, typer.Option(help="Probability of a false alarm within 100 windows; 0.01 by default.")
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(help="File that keeps the monitor between calls: read if it exists, then written."),
    ] = None,
    late_labels: Annotated[
        list[Path] | None,
        typer.Option(
            help="Labels that arrived later: a .csv, .tsv or .parquet file with --id and --labels or label. Repeat the "
            "option for several files."
        ),
    ] = None,
    prometheus: Annotated[Path | None, typer.Option(help="A file to write in the Prometheus text format.")] = None,
    as_json: Json = False,
) -> None:
    """Estimate a classifier's accuracy over time without labels, and raise alarms.

    Labels in the files are shown next to the estimates. With --id and --state, --late-labels adds the labels of
    earlier data. With --state and no data, the page and the metrics are written again. The exit status is 3 if the data
    raise an alarm.
    """
    _check_outputs(output, state, prometheus)
    paths, late = expand("--data", [*(data or []), *(files or [])]), expand("--late-labels", late_labels or [])
    _check_data(paths, late, held.id, state)
    print_warnings(_warn_order([path.name for path in paths]))
    given = {"window": window, "alarm_below": alarm_below, "false_alarm_rate": false_alarm_rate}
    settings = {name: value for name, value in given.items() if value is not None}
    fitted, layout, _ = read_calibrator(calibrator, held.layout())
    layout = replace(layout, labels=None) if late else layout
    with collect_warnings():
        watched = _open_monitor(fitted, paths, layout, state, settings)
    start = watched.n_samples
    with collect_warnings(), _explain_late_labels(several=bool(late and files)):
        layout = _read_stream(watched, paths, layout, close_windows=window is None and state is None)
    of_labels = replace(layout, labels=held.labels)
    print_warnings([note for path in late for note in _add_labels(watched, path, of_labels)])
    if not watched.windows:
        _keep_for_later(watched, state, as_json=as_json)
        return
    _write(watched, output, prometheus, state)
    has_alarm = any(alarm.until is None or alarm.until > start for alarm in watched.alarms)
    if as_json:
        print_json({"report": output, "alarm": has_alarm, **watched.to_dict()})
    else:
        _print_windows(watched, output)
    if has_alarm:
        raise typer.Exit(ALARM)


def _check_outputs(output: Path | None, state: Path | None, prometheus: Path | None) -> None:
    from densecal.io.files import check_output_file
    from densecal.monitor.prometheus import require_client

    for path in filter(None, (output, state, prometheus)):
        check_output_file(path)
    if prometheus is not None:
        require_client()


def _check_data(paths: list[Path], late: list[Path], sample_id: str | None, state: Path | None) -> None:
    if late and sample_id is None:
        raise UsageError("--late-labels needs --id: the column of sample ids, in the data and in the file of labels.")
    if not paths and (state is None or not state.exists()):
        raise UsageError(
            "monitor needs data: pass --data FILE ... in chronological order. Late labels or outputs alone need the "
            "--state of a monitor that has read data."
        )


def _open_monitor(
    calibrator: Calibrator, paths: list[Path], layout: FileLayout, state: Path | None, settings: dict[str, float]
) -> Monitor:
    from densecal.monitor.monitor import Monitor
    from densecal.outputs import OutputShards

    if state is not None and state.exists():
        continued = Monitor.load(state, calibrator)
        own = asdict(continued.settings)
        if different := [name for name, value in settings.items() if own[name] != value]:
            started = ", ".join(f"{_SETTINGS[name]} {own[name]}" for name in different)
            raise UsageError(f"{state} was started with {started}. Pass the same, or use another file.")
        return continued
    if "window" not in settings:
        if state is not None:
            raise UsageError("--state needs --window: the number of samples per window, across files.")
        settings = {"window": max(len(OutputShards([path], layout)) for path in paths), **settings}
    return Monitor(calibrator, **settings)  # type: ignore[arg-type]


def _read_stream(watched: Monitor, paths: list[Path], layout: FileLayout, *, close_windows: bool) -> FileLayout:
    """Add the files to the monitor, and return the layout with their class names."""
    from densecal.io.files import name_file_in_errors
    from densecal.io.tables import sample_names
    from densecal.outputs import OutputShards

    for path in track(paths, "reading"):
        with name_file_in_errors(path):
            shards, start = OutputShards([path], layout, verify=True), 0
            ids = None if layout.id is None or shards.ids is None else sample_names(path, shards.ids)
            for batch in shards.batches():
                watched.update(batch, ids=None if ids is None else ids[start : start + len(batch)], at=path.stem)
                start += len(batch)
        layout = shards.layout
        if close_windows:
            watched.close_window()
    return layout


@contextmanager
def _explain_late_labels(*, several: bool) -> Iterator[None]:
    """Say what becomes of a second file after --late-labels, if it cannot be read."""
    from densecal.errors import ArtefactError

    try:
        yield
    except ArtefactError as error:
        if not several:
            raise
        message = "It was read as data. For several files of labels, repeat --late-labels before each."
        raise ArtefactError(f"{error} {message}") from error


def _add_labels(watched: Monitor, path: Path, layout: FileLayout) -> list[str]:
    """Add the labels of a file, and return a warning if some of them match no sample without a label."""
    from densecal.errors import ArtefactError, CalibrationWarning
    from densecal.io.files import listed, name_file_in_errors
    from densecal.io.output_files import encode_labels
    from densecal.io.tables import read_late_labels

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
    if n_found == len(ids):
        return []
    return [
        f"{path}: {len(ids) - n_found:,} of {len(ids):,} ids match no sample without a label. Such a sample was read "
        "without --id, already has a label, or is too old."
    ]


def _keep_for_later(watched: Monitor, state: Path | None, *, as_json: bool) -> None:
    """Write the state of a monitor that has no complete window yet."""
    found = f"The data have {watched.n_samples:,} samples, fewer than --window {watched.settings.window:,}"
    if state is None:
        raise ValueError(f"{found}.")
    watched.save(state)
    if as_json:
        print_json({"report": None, "alarm": False, **watched.to_dict()})
    else:
        open_console().print(shown(f"{found}: no window yet. {state} keeps them for the next call."))


def _write(watched: Monitor, output: Path | None, prometheus: Path | None, state: Path | None) -> None:
    """Write the page, the metrics and, last, the state: after an error the same command does not count data twice."""
    from densecal.io.files import atomic_write
    from densecal.report.monitor_page import write_monitor_report

    if output is not None:
        write_monitor_report(output, watched)
    if prometheus is not None:
        from densecal.monitor.prometheus import prometheus_text

        text = prometheus_text(watched)
        with atomic_write(prometheus) as temporary:
            temporary.write_text(text, encoding="utf-8")
    if state is not None:
        watched.save(state)


def _print_windows(watched: Monitor, output: Path | None) -> None:
    from densecal.report.monitor_page import describe_limit, describe_status

    console = open_console()
    console.print(_windows_table(watched))
    console.print(f"[dim]{shown(describe_limit(watched))}[/dim]")
    for alarm in watched.alarms:
        console.print(f"[red]alarm[/red] {shown(str(alarm))}")
    console.print(f"[bold]{shown(describe_status(watched)['text'])}[/bold]")
    if output is not None:
        console.print(f"[dim]written to {shown(str(output))}[/dim]")


def _windows_table(watched: Monitor) -> Group:
    from densecal.display import percent

    rows = []
    windows = watched.windows
    for one in windows[-MAX_WINDOWS_SHOWN:]:
        found, known = one.estimate, one.labelled_accuracy
        mark = "[red]below[/red]" if found.accuracy < watched.settings.alarm_below else ""
        interval = f"{100 * found.low:.1f}–{100 * found.high:.1f}"
        labelled = ""
        if known is not None:
            ends = f"{100 * known.low:.1f}–{100 * known.high:.1f}"
            labelled = f"{percent(known.estimate, 1)} of {one.n_labels:,} ({ends})"
        numbers = [percent(found.accuracy, 1), interval, percent(found.plain_confidence, 1), labelled]
        rows.append([shown(one.end_at), f"{found.n_samples:,}", *numbers, percent(found.far_share, 1), mark])
    hidden = len(windows) - len(rows)
    title = "Estimated accuracy over time" + (f" (the last {len(rows)} of {len(windows)} windows)" if hidden else "")
    heads = ["window until", "samples", "estimated", "95% interval", "TS claims", "on labels", "far inputs", ""]
    return plain_table(title, heads, rows)


def _warn_order(names: list[str]) -> list[str]:
    """Return a warning if files are in alphabetical order and that puts 10 before 2."""
    from densecal.io.output_files import natural_order

    if names != sorted(names) or names == sorted(names, key=natural_order):
        return []
    return [
        f"The files are in alphabetical order, from {names[0]} to {names[-1]}. To read them by number, list them in "
        "that order."
    ]
