"""What densecal raises and warns beyond Python's own ValueError and TypeError."""

from __future__ import annotations


class ArtefactError(ValueError):
    """A file cannot be read as what it claims to be: truncated, of another version, or made for other layers.

    Examples
    --------
    >>> issubclass(ArtefactError, ValueError)
    True
    """


class CalibrationWarning(UserWarning):
    """A fit or a measure is valid but says less than it seems to, and the message says why.

    Examples
    --------
    >>> issubclass(CalibrationWarning, UserWarning)
    True
    """
