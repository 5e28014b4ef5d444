"""Method names such as ``dac+ets``: the one place that reads and writes them."""

from __future__ import annotations

DAC = "dac"
SHIFT_FITTED = "dac-shift"
"""In a method's name: DAC fitted with shifted data."""
UNCALIBRATED = "uncalibrated"
ORACLE = "oracle"
_ABBREVIATIONS = (DAC, "ts", "ets", "spl", "irm", "dia", "ir", "pts", "dir", "vs")


def base_method(method: str) -> str:
    """Return the method that DAC was put before; alone, DAC stands before the uncalibrated softmax.

    Examples
    --------
    >>> base_method("dac+ets"), base_method("dac"), base_method("ts")
    ('ets', 'uncalibrated', 'ts')
    """
    parts = [part for part in method.split("+") if part not in (DAC, SHIFT_FITTED)]
    return "+".join(parts) or UNCALIBRATED


def has_dac(method: str) -> bool:
    """Whether the method's name says that it starts with DAC.

    Examples
    --------
    >>> has_dac("dac+ets"), has_dac("dac-shift+ets"), has_dac("ets")
    (True, True, False)
    """
    return DAC in method.split("+") or is_shift_fitted(method)


def is_shift_fitted(method: str) -> bool:
    """Whether the method's name says that its DAC was fitted with data that have moved.

    Examples
    --------
    >>> is_shift_fitted("dac-shift+ets"), is_shift_fitted("dac+ets")
    (True, False)
    """
    return SHIFT_FITTED in method.split("+")


def method_label(method: str) -> str:
    """Write a method's short name the way papers do.

    Examples
    --------
    >>> [method_label(name) for name in ("uncalibrated", "dac+irm", "dac-shift+ts", "my model")]
    ['Uncalibrated', 'DAC + IRM', 'DAC (shift fit) + TS', 'my model']
    """
    if method in (UNCALIBRATED, ORACLE):
        return method.capitalize()
    names = {name: name.upper() for name in _ABBREVIATIONS} | {SHIFT_FITTED: "DAC (shift fit)"}
    return " + ".join(names.get(part, part) for part in method.split("+"))


def parse_method(method: str) -> tuple[str, ...]:
    """Return the parts of a method's name."""
    return tuple(method.split("+"))


def clean_fitted(method: str) -> str:
    """Return the name of the same method with DAC fitted on clean data alone, as in the paper."""
    return "+".join(DAC if part == SHIFT_FITTED else part for part in parse_method(method))
