"""``densecal monitor``: estimate the accuracy over time from files of outputs, without labels."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from densecal.cli.app import collect_warnings, open_console, print_json, print_saved, shown
from densecal.cli.inputs import FILES, FileOptions, Json, UsageError, add_advice, check_outputs, expand, with_options
from densecal.errors import warn_user
from densecal.io.atomic_files import hold_lock

if TYPE_CHECKING:
    from densecal.monitor.monitor import Monitor

ALARM = 3
"""Exit code if there is an alarm."""
CloseWindows = Annotated[
    bool,
    typer.Option("--close-windows", help="End a window with each file, also if it has fewer samples than --window."),
]
LateLabels = Annotated[
    list[Path] | None,
    typer.Option(
        help="Labels that arrived later: a .csv, .tsv or .parquet file with --id and --labels or label. Repeat the "
        "option for several files."
    ),
]
LATE_LABELS_ADVICE = "It was read as data. For several files of labels, repeat --late-labels before each."


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
    close_windows: CloseWindows = False,
    late_labels: LateLabels = None,
    prometheus: Annotated[Path | None, typer.Option(help="A file to write in the Prometheus text format.")] = None,
    as_json: Json = False,
) -> None:
    """Estimate a classifier's accuracy over time without labels, and raise alarms.

    If the files contain labels, of all rows or some, the accuracy on them is shown next to the estimates. With --id and
    --state, --late-labels adds the labels of earlier data. With --state and no data, the page and the metrics are
    written again. The exit code is 3 if the data raise an alarm, or if the accuracy on labels that are new lies below
    the limit by more than chance.
    """
    from densecal.cli.calibrator_files import read_calibrator
    from densecal.cli.stream_files import add_labels, open_monitor, read_stream
    from densecal.monitor.prometheus import require_client

    paths, late = expand("--data", [*(data or []), *(files or [])]), expand("--late-labels", late_labels or [])
    written = {"--output": output, "--state": state, "--prometheus": prometheus}
    check_outputs(written, {"the calibrator": [calibrator], "--data": paths, "--late-labels": late})
    if prometheus is not None:
        require_client()
    _check_data(paths, late, held.id, state)
    given = {"window": window, "alarm_below": alarm_below, "false_alarm_rate": false_alarm_rate}
    settings = {name: value for name, value in given.items() if value is not None}
    # Without data no scores are read, so it does not matter what they would be.
    layout = replace(held.layout(), partial_labels=True, assume_logits=held.assume_logits or not paths)
    fitted, layout, _ = read_calibrator(calibrator, layout)
    at_ends = close_windows or (window is None and state is None)
    # No other process may update the state between its reading and its writing.
    with nullcontext() if state is None else hold_lock(state), collect_warnings():
        _warn_order([path.name for path in paths])
        layout = replace(layout, labels=None) if late else layout
        watched = open_monitor(fitted, paths, layout, state, settings)
        start, labelled = watched.n_samples, {window.number: window.n_labels for window in watched.windows}
        with add_advice(LATE_LABELS_ADVICE, applies=bool(late and files)):
            layout = read_stream(watched, paths, layout, close_windows=at_ends)
        for path in late:
            add_labels(watched, path, replace(layout, labels=held.labels))
        _write(watched, output, prometheus, state)
    has_alarm = _has_alarm(watched, start, labelled)
    with nullcontext() if state is None else print_saved(state):
        _print_result(watched, output, state, has_alarm=has_alarm, as_json=as_json)
    if has_alarm:
        raise typer.Exit(ALARM)


def _has_alarm(watched: Monitor, start: int, labelled: Mapping[int, int]) -> bool:
    """Return whether there is an alarm from a sample on, or new labels, of which there were so many, lie too low."""
    if any(alarm.until is None or alarm.until > start for alarm in watched.alarms):
        return True
    new = [window for window in watched.windows if window.n_labels != labelled.get(window.number, 0)]
    return any(window.labels_lie_below(watched.settings) for window in new)


def _check_data(paths: list[Path], late: list[Path], sample_id: str | None, state: Path | None) -> None:
    if late and sample_id is None:
        raise UsageError("--late-labels needs --id: the column of sample ids, in the data and in the file of labels.")
    if not paths and (state is None or not state.exists()):
        raise UsageError(
            "monitor needs data: pass --data FILE ... in chronological order. Late labels or outputs alone need the "
            "--state of a monitor that has read data."
        )


def _too_few_samples(watched: Monitor) -> str:
    return f"The data have {watched.n_samples:,} samples, fewer than --window {watched.settings.window:,}"


def _write(watched: Monitor, output: Path | None, prometheus: Path | None, state: Path | None) -> None:
    """Write the page, if a window is complete, the metrics and, last, the state.

    After an error the state is unchanged, so repeating the command does not count data twice.
    """
    from densecal.io.atomic_files import atomic_write
    from densecal.report.monitor_page import write_monitor_report

    if not watched.windows and state is None:
        raise ValueError(f"{_too_few_samples(watched)}.")
    if output is not None and watched.windows:
        write_monitor_report(output, watched)
    elif output is not None:
        warn_user(f"{output} was not written: no window is complete yet.")
    if prometheus is not None:
        from densecal.monitor.prometheus import prometheus_text

        text = prometheus_text(watched)
        with atomic_write(prometheus) as temporary:
            temporary.write_text(text, encoding="utf-8")
    if state is not None:
        watched.save(state)


def _print_result(watched: Monitor, output: Path | None, state: Path | None, *, has_alarm: bool, as_json: bool) -> None:
    if as_json:
        below = [window.number for window in watched.windows if window.labels_lie_below(watched.settings)]
        written = output if watched.windows else None
        print_json({"report": written, "alarm": has_alarm, "labels_below": below, **watched.to_dict()})
    elif watched.windows:
        from densecal.cli.tables import print_windows

        print_windows(watched, output)
    else:
        kept = f"{_too_few_samples(watched)}: no window yet. {state} keeps them for the next call."
        open_console().print(shown(kept))


def _warn_order(names: list[str]) -> None:
    """Warn if files are in alphabetical order and that puts 10 before 2."""
    from densecal.io.output_files import natural_order

    if names == sorted(names) != sorted(names, key=natural_order):
        warn_user(
            f"The files are in alphabetical order, from {names[0]} to {names[-1]}. To read them by number, list them "
            "in that order."
        )
