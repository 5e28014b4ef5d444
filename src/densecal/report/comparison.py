"""The choice of methods that a report compares, by their calibrators and not by their names."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from densecal.calibrators import ORACLE, UNCALIBRATED
from densecal.calibrators.registry import base_method, clean_fitted, has_dac, is_shift_fitted
from densecal.display import points
from densecal.evaluation import EvaluationTable
from densecal.plots.style import MethodStyle, method_style

Level: TypeAlias = int | str | None
"""A severity, the name of a natural shift, or None for the mean over all severities."""
MOST_NATURAL_SHIFTS = 3
"""The sentences and key numbers are about at most this many natural shifts."""


def compared_pair(table: EvaluationTable) -> tuple[str, str]:
    """Return the best method with DAC and its reference, the same method without DAC.

    The reference of DAC alone is temperature scaling or ETS, the first of them in the table. Without such a pair,
    return the best method with DAC, or else the best one, and the uncalibrated softmax, or else another method.
    """
    real = _real_methods(table)
    pairs = {method: partner for method in real if (partner := _without_dac(table, method))}
    if pairs:
        best = _lowest(table, pairs, judged_levels(table))
        return best, pairs[best]
    with_dac = [method for method in real if has_dac(method_of(table, method))]
    candidates = with_dac or [method for method in real if method != UNCALIBRATED] or real
    best = _lowest(table, candidates, judged_levels(table))
    others = [method for method in real if method != best]
    return best, UNCALIBRATED if UNCALIBRATED in others else (*others, best)[0]


def missing_counterpart(table: EvaluationTable, method: str) -> str | None:
    """Return the counterpart without DAC, such as ``ts``, if it was not evaluated."""
    counterparts = _counterparts(method_of(table, method))
    return counterparts[0] if counterparts and find_method(table, *counterparts) is None else None


def better_than(table: EvaluationTable, shown: Iterable[str], *levels: Level) -> str | None:
    """Return the method with the lowest error, or None if a shown method has the same printed error."""
    best, best_shown = (_lowest(table, methods, levels) for methods in (_real_methods(table), shown))
    errors = {points(_error(table, method, levels)) for method in (best, best_shown)}
    return best if len(errors) > 1 else None


def error_text(table: EvaluationTable, method: str, level: Level = None) -> str:
    """Return the error of a method in points."""
    return points(table.estimate(method, severity=level).estimate)


def judged_levels(table: EvaluationTable) -> tuple[Level, ...]:
    """Return the levels to compare: the mean over severities (None), or the only severity and each natural shift."""
    return table.levels if len(table.severities) == 1 and table.natural_shifts else (None,)


def told_shifts(table: EvaluationTable, method: str) -> tuple[str, ...]:
    """Return the natural shifts or, of many, those with the largest errors of the method."""
    shifts = table.natural_shifts
    if len(shifts) <= MOST_NATURAL_SHIFTS:
        return shifts
    return tuple(sorted(shifts, key=lambda shift: -_error(table, method, (shift,)))[:MOST_NATURAL_SHIFTS])


def method_of(table: EvaluationTable, method: str) -> str:
    """Return the method of a calibrator, such as ``dac+ets``, whatever its name in the table."""
    return table.method_names.get(method, method)


def find_method(table: EvaluationTable, *wanted: str) -> str | None:
    """Return the name in the table of the first of the wanted methods, such as ``ets``."""
    return next((method for name in wanted for method in table.methods if method_of(table, method) == name), None)


def clean_fit_of(table: EvaluationTable, method: str) -> str | None:
    """Return the same method with DAC fitted on clean data only, if this one was fitted with shifted data."""
    kind = method_of(table, method)
    return find_method(table, clean_fitted(kind)) if is_shift_fitted(kind) else None


def row_of(table: EvaluationTable, method: str) -> str:
    """Return the method without DAC that shares a row of a chart with this one; that of DAC alone is its reference."""
    is_dac_alone = has_dac(method) and base_method(method) == UNCALIBRATED
    return _without_dac(table, method) or method if is_dac_alone else base_method(method)


def style_of(table: EvaluationTable, method: str) -> MethodStyle:
    """Return the style of a method: label and colour from its name, marks and lines from its calibrator."""
    return method_style(method, method_of(table, method))


def _real_methods(table: EvaluationTable) -> list[str]:
    return [method for method in table.methods if method != ORACLE]


def _lowest(table: EvaluationTable, methods: Iterable[str], levels: Sequence[Level]) -> str:
    return min(methods, key=lambda method: _error(table, method, levels))


def _error(table: EvaluationTable, method: str, levels: Sequence[Level]) -> float:
    return sum(table.estimate(method, severity=level).estimate for level in levels)


def _without_dac(table: EvaluationTable, method: str) -> str | None:
    """Return the calibrated counterpart of a method with DAC, if available."""
    return find_method(table, *_counterparts(method_of(table, method)))


def _counterparts(kind: str) -> tuple[str, ...]:
    """Return the calibrators that are the same without DAC; those of DAC alone are TS, or else ETS."""
    if not has_dac(kind):
        return ()
    # DAC with a single temperature is TS. Almost any method improves on the softmax, so it is no counterpart.
    return ("ts", "ets") if base_method(kind) == UNCALIBRATED else (base_method(kind),)
