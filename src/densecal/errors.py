"""Exceptions and warnings of densecal, in addition to Python's ValueError and TypeError."""

from __future__ import annotations

import sys
import warnings
from importlib.util import find_spec

CALLERS = ("densecal", "torch", "sklearn")


class ArtefactError(ValueError):
    """A file cannot be used: it is damaged, has another format or version, or does not match the classifier."""


class NoSamplesError(ValueError):
    """Data have the right form, but no samples."""


class SettingError(ValueError):
    """A setting has a value that is invalid for any data."""


class CalibrationWarning(UserWarning):
    """A result is valid but less reliable than it appears. The message gives the reason."""


def warn_user(message: str) -> None:
    """Issue a CalibrationWarning that refers to the line of the user's code that called densecal.

    Lines of libraries that call densecal, such as torch for a module, are skipped.
    """
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").split(".")[0] in CALLERS:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, CalibrationWarning, stacklevel=level)


def require(package: str, extra: str, what: str) -> None:
    """Raise if an optional package is missing, and say how to install it."""
    if find_spec(package) is None:
        raise ImportError(f'{what} needs {package}, which is not installed: pip install "densecal[{extra}]".')
