"""The ``densecal`` command: its subcommands, its help and its exit codes.

Commands import slow modules inside their functions to keep ``densecal --help`` fast.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence
from typing import Annotated

import typer

from densecal.cli import apply, demo, evaluate, extract, fit, inspect, monitor, shift
from densecal.cli.inputs import SingleValueCommand, UsageError
from densecal.cli.screen import printable

OK, FAILED, WRONG_USAGE, INTERRUPTED = 0, 1, 2, 130
DEBUG = "--debug"

app = typer.Typer(
    name="densecal",
    help="Density-aware calibration: confidence that stays honest when the data moves.",
    epilog="Start with `densecal demo`: it compares calibration methods on bundled data in under a minute.",
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


for function, example in (
    (demo.demo, "demo -o report.html"),
    (fit.fit, "fit --train train.safetensors --val val.safetensors --method dac+ets -o cal.densecal"),
    (apply.apply, "apply cal.densecal --data new.safetensors -o probabilities.npz"),
    (evaluate.evaluate, "evaluate cal.densecal --data clean.safetensors --data fog-3.safetensors"),
    (evaluate.report, "report cal.densecal --data tests/ --val val.safetensors -o report.html"),
    (monitor.monitor, "monitor cal.densecal --data day-*.safetensors -o monitor.html"),
    (inspect.inspect, "inspect cal.densecal"),
    (extract.extract, "extract torchvision:resnet18 --weights model.pt --data cifar10 -o test.safetensors"),
):
    app.command(cls=SingleValueCommand, epilog=f"Example: densecal {example}")(function)
app.add_typer(shift.group, name="shift")


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
    return WRONG_USAGE if isinstance(error, UsageError) else FAILED


def _print_error(message: str) -> None:
    typer.secho("densecal: ", fg=typer.colors.RED, bold=True, nl=False, err=True)
    typer.echo(printable(message), err=True)
