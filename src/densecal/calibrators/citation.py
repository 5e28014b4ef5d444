"""The publication of a method."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Citation:
    """The publication of a method.

    Examples
    --------
    >>> guo = Citation("On Calibration of Modern Neural Networks", "Guo, Pleiss, Sun, Weinberger", "ICML", 2017)
    >>> print(guo)
    Guo, Pleiss, Sun, Weinberger: On Calibration of Modern Neural Networks. ICML 2017
    """

    title: str
    authors: str
    venue: str
    year: int

    def __str__(self) -> str:
        return f"{self.authors}: {self.title}. {self.venue} {self.year}"
