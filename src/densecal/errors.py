"""Exceptions and warnings of densecal, in addition to Python's ValueError and TypeError."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

CALLERS = ("densecal", "torch", "sklearn")


class ArtefactError(ValueError):
    """A file cannot be used: it is damaged, has another format or version, or does not match the classifier.

    Examples
    --------
    >>> issubclass(ArtefactError, ValueError)
    True
    """


class CalibrationWarning(UserWarning):
    """A result is valid but less reliable than it appears. The message gives the reason.

    Examples
    --------
    >>> issubclass(CalibrationWarning, UserWarning)
    True
    """


def warn_user(message: str) -> None:
    """Issue a CalibrationWarning at the line of the user's code that called densecal, however deep the call is.

    Lines of the libraries that call densecal, as torch does for a module, are not the user's.
    """
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in CALLERS:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, CalibrationWarning, stacklevel=level)


@contextmanager
def name_file_in_errors(path: str | Path) -> Iterator[None]:
    """Prefix the message of a ValueError or TypeError with the path."""
    try:
        yield
    except (ValueError, TypeError) as error:
        if str(path) in str(error):
            raise
        raise type(error)(f"{path}: {error}") from error


def require(package: str, extra: str, what: str) -> None:
    """Raise if an optional package is missing, and say how to install it."""
    if find_spec(package) is None:
        raise ImportError(f'{what} needs {package}, which is not installed: pip install "densecal[{extra}]".')


def listed(words: Sequence[str], most: int = 8) -> str:
    """Join words with commas; after the first few, give the number of the others."""
    return ", ".join(words[:most]) + (f" and {len(words) - most} more" if len(words) > most else "")
