"""The names of methods, such as ``dac+ets``, and their publications."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

DAC = "dac"
SHIFT_FITTED = "dac-shift"
"""The name of a DAC that was fitted with shifted data."""
UNCALIBRATED = "uncalibrated"
ORACLE = "oracle"
DEFAULT_METHOD = "dac+ets"
_ABBREVIATIONS = (DAC, "ts", "ets", "spl", "irm", "dia", "ir", "pts", "dir", "vs")
_NAMES = {"platt": "Platt", "beta": "Beta"}


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


def parse_method(method: str) -> tuple[str, ...]:
    """Return the names of the stages, in order."""
    return tuple(part.strip() for part in method.lower().split("+"))


def join_names(names: Iterable[str]) -> str:
    """Return the name of a method from the names of its stages."""
    return "+".join(names)


def base_method(method: str) -> str:
    """Return the method without DAC: ``ets`` for ``dac+ets``, ``uncalibrated`` for ``dac``."""
    return join_names(part for part in method.split("+") if not _is_dac(part)) or UNCALIBRATED


def has_dac(method: str) -> bool:
    """Return whether DAC is one of the stages."""
    return any(_is_dac(part) for part in parse_method(method))


def is_shift_fitted(method: str) -> bool:
    """Return whether DAC was fitted with shifted data, according to the name."""
    return SHIFT_FITTED in parse_method(method)


def method_label(method: str) -> str:
    """Return the name as written in papers: ``DAC + IRM``, ``DAC (shift fit) + TS``. Unknown names do not change."""
    if method in (UNCALIBRATED, ORACLE):
        return method.capitalize()
    names = {name: name.upper() for name in _ABBREVIATIONS} | _NAMES | {SHIFT_FITTED: "DAC (shift fit)"}
    return " + ".join(names.get(part, part) for part in method.split("+"))


def clean_fitted(method: str) -> str:
    """Return the name of the same method with DAC fitted on clean data only, as in the paper."""
    return join_names(DAC if part == SHIFT_FITTED else part for part in method.split("+"))


def _is_dac(part: str) -> bool:
    return part in (DAC, SHIFT_FITTED)
