"""The command as a whole: its groups, its help, and what happens when something goes wrong.

Modules that take long to import are imported inside the commands, so that ``densecal --help`` answers at once.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from densecal.cli import demo, extract, fit, inspect, judge, shift

OK, FAILED, WRONG_USAGE, INTERRUPTED = 0, 1, 2, 130
DEBUG = "--debug"

app = typer.Typer(
    name="densecal",
    help="Density-aware calibration: confidence that stays honest when the data moves.",
    epilog="Start with `densecal demo`: it shows on data inside the package what densecal is for, in under a minute.",
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
    debug: Annotated[bool, typer.Option(DEBUG, help="Show the traceback of an error; may stand anywhere.")] = False,
) -> None:
    """Density-aware calibration: confidence that stays honest when the data moves."""
    if version:
        from densecal import __version__

        typer.echo(f"densecal {__version__}")
        raise typer.Exit(OK)
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


demo.add_to(app)
fit.add_to(app)
judge.add_to(app)
inspect.add_to(app)
extract.add_to(app)
shift.add_to(app)


def main(arguments: Sequence[str] | None = None, *, command: typer.Typer = app, name: str = "densecal") -> int:
    """Run the command and return its exit code: 0 done, 1 failed, 2 wrong usage, 130 interrupted.

    Examples
    --------
    >>> main(["--version"])
    densecal 0.1.0
    0
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    debug = DEBUG in given
    try:
        code = command([word for word in given if word != DEBUG], prog_name=name, standalone_mode=False)
    except (typer.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except Exception as error:
        if debug:
            traceback.print_exc()
        return _explain(error, debug=debug)
    # Some releases of Typer turn an interrupt into this code themselves.
    if code == INTERRUPTED:
        _complain("interrupted; nothing was left half-written.")
    return code if isinstance(code, int) else OK


def _explain(error: Any, *, debug: bool) -> int:
    """Say in one line what went wrong."""
    # Typer has carried its own copy of click since some release; its errors are known by what they can do.
    if hasattr(error, "format_message"):
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "densecal"
        _complain(f"{error.format_message()} (`{command} --help` shows how)")
        return int(getattr(error, "exit_code", WRONG_USAGE))
    message = " ".join(str(error).split()) or type(error).__name__
    expected = isinstance(error, (ValueError, TypeError, OSError, ImportError))
    if not expected:
        message = f"{type(error).__name__}: {message}"
    hint = "" if debug or expected else f" (run it again with {DEBUG} for the traceback)"
    _complain(message + hint)
    return FAILED


def _complain(message: str) -> None:
    typer.secho("densecal: ", fg=typer.colors.RED, bold=True, nl=False, err=True)
    typer.echo(message, err=True)
