"""The ``densecal`` command: its global options, its exit codes, and how results, warnings and errors are printed."""

from __future__ import annotations

import json
import os
import sys
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from densecal.cli.inputs import UsageError
from densecal.errors import SettingError

if TYPE_CHECKING:
    from rich.console import Console

OK, FAILED, WRONG_USAGE, INTERRUPTED = 0, 1, 2, 130
DEBUG = "--debug"
WIDTH_WITHOUT_TERMINAL = 120

app = typer.Typer(
    name="densecal",
    help="Density-aware calibration: confidence that stays honest when the data moves.",
    epilog="Start with `densecal demo`, which compares calibration methods on bundled data in under a minute.",
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
    debug: Annotated[bool, typer.Option(DEBUG, help="Show the traceback of an error; valid at any position.")] = False,
) -> None:
    """Density-aware calibration: confidence that stays honest when the data moves."""
    if version:
        from densecal import __version__

        typer.echo(f"densecal {__version__}")
        raise typer.Exit(OK)
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main(arguments: Sequence[str] | None = None, *, command: typer.Typer = app, name: str = "densecal") -> int:
    """Run the command and return its exit code: 0 success, 1 failure, 2 wrong usage, 3 alarm, 130 interrupted."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = DEBUG in given
    try:
        code = command([word for word in given if word != DEBUG], prog_name=name, standalone_mode=False)
    except (typer.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except Exception as error:
        if debug:
            traceback.print_exc()
        return _report_error(error, debug=debug)
    # Some releases of Typer return this code for an interrupt instead of raising.
    if code == INTERRUPTED:
        _print_error("interrupted; no partial file was left behind.")
    return code if isinstance(code, int) else OK


def _report_error(error: Exception, *, debug: bool) -> int:
    """Print the error as one line and return the exit code."""
    # Recent releases of Typer vendor click, so usage errors are recognised by their attributes, not their class.
    if hasattr(error, "format_message"):
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "densecal"
        _print_error(f"{error.format_message()} (see `{command} --help`)")
        return int(getattr(error, "exit_code", WRONG_USAGE))
    message = " ".join(str(error).split()) or type(error).__name__
    if not isinstance(error, (ValueError, TypeError, OSError, ImportError)):
        message = f"{type(error).__name__}: {message}" + ("" if debug else f" (use {DEBUG} to see the traceback)")
    _print_error(message)
    return WRONG_USAGE if isinstance(error, (UsageError, SettingError)) else FAILED


def _print_error(message: str, label: str = "densecal", colour: str = typer.colors.RED) -> None:
    typer.secho(f"{label}: ", fg=colour, bold=True, nl=False, err=True)
    typer.echo(printable(message), err=True)


def _print_warning(message: str) -> None:
    _print_error(message, "warning", typer.colors.YELLOW)


def open_console() -> Console:
    """Return the console for results; without a terminal, lines are not wrapped at 80 columns."""
    from rich.console import Console

    console = Console(highlight=False, emoji=False)
    return console if console.is_terminal else Console(highlight=False, emoji=False, width=WIDTH_WITHOUT_TERMINAL)


def printable(text: str) -> str:
    """Return text with control characters escaped, so that text from files cannot control the terminal."""
    return "".join(one if one.isprintable() or one in "\n\u202f" else ascii(one)[1:-1] for one in text)


def shown(text: str) -> str:
    """Return text for a table: control characters and markup are escaped."""
    from rich.markup import escape

    return escape(printable(text))


def print_json(data: Mapping[str, Any]) -> None:
    """Print JSON, with null for NaN and infinity, and control characters escaped."""
    encoded = json.dumps(data, default=lambda value: str(value) if isinstance(value, Path) else value.tolist())
    plain = json.loads(encoded, parse_constant=lambda _: None)
    text = json.dumps(plain, indent=2, ensure_ascii=False)
    typer.echo("".join(one if one.isprintable() or one == "\n" else json.dumps(one)[1:-1] for one in text))


@contextmanager
def collect_warnings() -> Iterator[list[str]]:
    """Collect densecal's warnings in a list, and print each of them once on exit, also if an error is the reason."""
    from densecal.errors import CalibrationWarning

    messages: list[str] = []
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", CalibrationWarning)
            yield messages
    finally:
        for warning in caught:
            if issubclass(warning.category, CalibrationWarning):
                messages.append(" ".join(str(warning.message).split()))
            else:
                warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
        messages[:] = dict.fromkeys(messages)
        for text in messages:
            _print_warning(text)


@contextmanager
def print_saved(path: Path) -> Iterator[None]:
    """Print a result that was saved to a file; a failure to print it only causes a warning, which names the file."""
    try:
        yield
    # Rich exits if the reader of a pipe has gone.
    except (OSError, SystemExit) as error:
        # Discard the buffer of standard output: Python would try to write it at exit, and fail again.
        with suppress(OSError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else "the pipe is closed"
        with suppress(OSError):
            saved = f"but {path} was saved: do not run the command again."
            _print_warning(f"the result could not be printed ({reason}), {saved}")


def print_values(title: str, values: Mapping[str, str]) -> None:
    """Print a title and a table of names and values."""
    from rich.console import Group
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    for name, value in values.items():
        table.add_row(f"[dim]{shown(name)}[/dim]", shown(value))
    open_console().print(Group(f"[bold]{shown(title)}[/bold]", table))


def file_and_size(path: Path) -> str:
    """Return the name and size of a file, such as ``cal.densecal (1.2 MB)``, or of the files of a folder."""
    files = list(path.glob("*.safetensors")) if path.is_dir() else [path]
    size = f"{sum(file.stat().st_size for file in files) / 1e6:,.1f} MB"
    return f"{path} ({len(files)} files, {size})" if path.is_dir() else f"{path} ({size})"
