"""``densecal monitor``: estimate the accuracy over time from files of outputs, without labels."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from densecal.cli.app import collect_warnings, open_console, print_json, print_saved, print_warnings, shown
from densecal.cli.calibrator_files import read_calibrator
from densecal.cli.inputs import FILES, FileOptions, Json, UsageError, check_outputs, expand, with_options
from densecal.cli.stream_files import add_labels, explain_late_labels, open_outputs, read_stream
from densecal.cli.windows import print_windows
from densecal.io.files import hold_lock, listed

if TYPE_CHECKING:
    from densecal.calibrators.base import Calibrator
    from densecal.io.output_files import FileLayout
    from densecal.monitor.monitor import Monitor

ALARM = 3
"""Exit code if there is an alarm."""
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
        Path | None, typer.Option(help="File that keeps the monitor between calls: read if it exists, then written.")
    ] = None,
    close_windows: Annotated[
        bool,
        typer.Option(
            "--close-windows", help="End a window with each file, also if it has fewer samples than --window."
        ),
    ] = False,
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

    If the files contain labels, of all rows or some, the accuracy on them is shown next to the estimates. With --id and
    --state, --late-labels adds the labels of earlier data. With --state and no data, the page and the metrics are
    written again. The exit code is 3 if the data raise an alarm, or if the accuracy on labels that are new lies below
    the limit by more than chance.
    """
    _check_outputs(output, state, prometheus)
    paths, late = expand("--data", [*(data or []), *(files or [])]), expand("--late-labels", late_labels or [])
    written = {"--output": output, "--state": state, "--prometheus": prometheus}
    check_outputs(written, {"the calibrator": [calibrator], "--data": paths, "--late-labels": late})
    _check_data(paths, late, held.id, state)
    print_warnings(_warn_order([path.name for path in paths]))
    given = {"window": window, "alarm_below": alarm_below, "false_alarm_rate": false_alarm_rate}
    settings = {name: value for name, value in given.items() if value is not None}
    # Without data no scores are read, so it does not matter what they would be.
    layout = held.layout() if paths else replace(held.layout(), assume_logits=True)
    fitted, layout, _ = read_calibrator(calibrator, replace(layout, partial_labels=True))
    layout = replace(layout, labels=None) if late else layout
    # No other process may update the state between its reading and its writing.
    with nullcontext() if state is None else hold_lock(state):
        with collect_warnings():
            watched = _open_monitor(fitted, paths, layout, state, settings)
            start, labelled = watched.n_samples, {window.number: window.n_labels for window in watched.windows}
            with explain_late_labels(several=bool(late and files)):
                at_ends = close_windows or (window is None and state is None)
                layout = read_stream(watched, paths, layout, close_windows=at_ends)
        of_labels = replace(layout, labels=held.labels)
        print_warnings([note for path in late for note in add_labels(watched, path, of_labels)])
        print_warnings(_warn_size(watched))
        _check_windows(watched, output, state)
        _write(watched, output, prometheus, state)
    has_alarm = any(alarm.until is None or alarm.until > start for alarm in watched.alarms)
    has_alarm |= any(
        window.n_labels != labelled.get(window.number, 0) and window.labels_lie_below(watched.settings)
        for window in watched.windows
    )
    with nullcontext() if state is None else print_saved(state):
        _print_result(watched, output, state, has_alarm=has_alarm, as_json=as_json)
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
        opened = [open_outputs(path, layout) for path in paths]
        settings = {"window": max(0 if one is None else len(one) for one in opened), **settings}
        if not settings["window"]:
            raise ValueError(f"--data holds no samples: no row in {listed([str(path) for path in paths])}.")
    return Monitor(calibrator, **settings)  # type: ignore[arg-type]


def _check_windows(watched: Monitor, output: Path | None, state: Path | None) -> None:
    """Raise if no window is complete and no state keeps the samples; warn if there is a state, but no page."""
    if watched.windows:
        return
    if state is None:
        raise ValueError(f"{_too_few_samples(watched)}.")
    if output is not None:
        print_warnings([f"{output} was not written: no window is complete yet."])


def _too_few_samples(watched: Monitor) -> str:
    return f"The data have {watched.n_samples:,} samples, fewer than --window {watched.settings.window:,}"


def _write(watched: Monitor, output: Path | None, prometheus: Path | None, state: Path | None) -> None:
    """Write the page, if a window is complete, the metrics and, last, the state.

    After an error the state is unchanged, so repeating the command does not count data twice.
    """
    from densecal.io.files import atomic_write
    from densecal.report.monitor_page import write_monitor_report

    if output is not None and watched.windows:
        write_monitor_report(output, watched)
    if prometheus is not None:
        from densecal.monitor.prometheus import prometheus_text

        text = prometheus_text(watched)
        with atomic_write(prometheus) as temporary:
            temporary.write_text(text, encoding="utf-8")
    if state is not None:
        watched.save(state)


def _print_result(watched: Monitor, output: Path | None, state: Path | None, *, has_alarm: bool, as_json: bool) -> None:
    if as_json:
        print_json({"report": output if watched.windows else None, "alarm": has_alarm, **watched.to_dict()})
    elif watched.windows:
        print_windows(watched, output)
    else:
        kept = f"{_too_few_samples(watched)}: no window yet. {state} keeps them for the next call."
        open_console().print(shown(kept))


def _warn_size(watched: Monitor) -> list[str]:
    """Return a warning if windows are so small that only an estimate worse than guessing would raise an alarm."""
    from densecal.display import counted, percent

    chance, samples = 1 / watched.calibrator.stages[-1].n_classes_, counted(watched.settings.window, "sample")
    if watched.effective_limit >= chance:
        return []
    return [
        f"A window of {samples} can hardly raise an alarm: its estimate would have to lie below about "
        f"{percent(watched.effective_limit, 1)}, but guessing has an accuracy of {percent(chance, 1)}. Use larger "
        "windows: --window, or more samples per file."
    ]


def _warn_order(names: list[str]) -> list[str]:
    """Return a warning if files are in alphabetical order and that puts 10 before 2."""
    from densecal.io.output_files import natural_order

    if names != sorted(names) or names == sorted(names, key=natural_order):
        return []
    return [
        f"The files are in alphabetical order, from {names[0]} to {names[-1]}. To read them by number, list them in "
        "that order."
    ]
