"""The class of every subcommand, and the error of a command line that cannot be followed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from typer.core import TyperCommand


class UsageError(ValueError):
    """The options contradict each other or have values that do not exist. The exit code is that of wrong usage."""


@contextmanager
def usage_errors() -> Iterator[None]:
    """Turn the library's errors about values of options into usage errors."""
    try:
        yield
    except ValueError as error:
        raise UsageError(str(error)) from error


class SingleValueCommand(TyperCommand):
    """A command that rejects a repeated option unless the option collects several values."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; a repeated option is a usage error, since the last value would win in silence."""
        if not ctx.resilient_parsing:
            _, _, given = self.make_parser(ctx).parse_args(args=list(args))
            for option, count in Counter(given).items():
                takes_one = option.param_type_name == "option" and not option.multiple and not option.is_flag  # type: ignore[attr-defined]
                if takes_one and count > 1:
                    ctx.fail(f"{option.opts[0]} takes one value but is given {count} times. Pass it once.")
        return super().parse_args(ctx, args)
