"""Method names such as ``dac+ets``: the one place that reads and writes them."""

from __future__ import annotations

from collections.abc import Iterable

DAC = "dac"
SHIFT_FITTED = "dac-shift"
"""In a method's name: DAC fitted with shifted data."""
UNCALIBRATED = "uncalibrated"
ORACLE = "oracle"
DEFAULT_METHOD = "dac+ets"
_ABBREVIATIONS = (DAC, "ts", "ets", "spl", "irm", "dia", "ir", "pts", "dir", "vs")


def parse_method(method: str) -> tuple[str, ...]:
    """Return the stages' names, in order."""
    return tuple(part.strip() for part in method.lower().split("+"))


def join_names(names: Iterable[str]) -> str:
    """Return the method's name from its stages' names."""
    return "+".join(names)


def base_method(method: str) -> str:
    """Return the method without DAC: ``ets`` for ``dac+ets``, and the uncalibrated softmax for ``dac``."""
    return join_names(part for part in method.split("+") if not _is_dac(part)) or UNCALIBRATED


def has_dac(method: str) -> bool:
    """Whether DAC is one of the stages."""
    return any(_is_dac(part) for part in parse_method(method))


def is_shift_fitted(method: str) -> bool:
    """Whether the name says that DAC was fitted with shifted data."""
    return SHIFT_FITTED in parse_method(method)


def method_label(method: str) -> str:
    """Return the name as papers write it: ``DAC + IRM``, ``DAC (shift fit) + TS``; other names stay as they are."""
    if method in (UNCALIBRATED, ORACLE):
        return method.capitalize()
    names = {name: name.upper() for name in _ABBREVIATIONS} | {SHIFT_FITTED: "DAC (shift fit)"}
    return " + ".join(names.get(part, part) for part in method.split("+"))


def clean_fitted(method: str) -> str:
    """Return the name of the same method with DAC fitted on clean data alone, as in the paper."""
    return join_names(DAC if part == SHIFT_FITTED else part for part in method.split("+"))


def _is_dac(part: str) -> bool:
    return part in (DAC, SHIFT_FITTED)
