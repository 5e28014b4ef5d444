"""The verdict of a report: sentences derived from the numbers, whether DAC helps or not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Literal

from densecal.calibrators import ORACLE, UNCALIBRATED
from densecal.calibrators.registry import base_method, has_dac, method_label
from densecal.display import percent, points
from densecal.evaluation import EvaluationTable
from densecal.evaluation.table import FEWEST_SAMPLES
from densecal.report.comparison import (
    Level,
    better_than,
    clean_fit_of,
    compared_pair,
    error_text,
    judged_levels,
    method_of,
    missing_counterpart,
    told_shifts,
)
from densecal.report.text import clean_sets, explain_names, level_name, level_place, listed

Tone = Literal["good", "even", "bad", "untested"]
SAME_ACCURACY = 1e-9
SMALLEST_CHANGE = 0.05
"""A change by a smaller share of the error is not clear, however certain it is in large test sets."""
A_POINT = "A point is a difference of one percentage point between confidence and accuracy."
NEEDED_METRICS = ("ece", "accuracy", "mean_confidence")


@dataclass(frozen=True)
class Verdict:
    """The result of an evaluation in a few sentences.

    Attributes
    ----------
    tone : {"good", "even", "bad", "untested"}
        Whether the method is significantly better than its reference and the uncalibrated softmax, by at least 5 % of
        the error; ``"untested"`` without bootstrap resamples or with too few samples.
    headline : str
        The result with its numbers.
    details : tuple of str
        Further numbers, one sentence each.
    method, reference : str
        The best method, and the method it is compared with.
    """

    tone: Tone
    headline: str
    details: tuple[str, ...]
    method: str
    reference: str


def judge(table: EvaluationTable) -> Verdict:
    """Compare the best method with its counterpart without DAC, and describe the result.

    Parameters
    ----------
    table : EvaluationTable
        The evaluation, with the metrics ece, accuracy and mean_confidence (included by default).
    """
    missing = [name for name in NEEDED_METRICS if name not in table.metrics]
    if missing:
        raise ValueError(
            f"A verdict or report needs the metrics {', '.join(NEEDED_METRICS)}, but the table lacks "
            f"{', '.join(missing)}. Evaluate with these metrics as well, or with the default metrics."
        )
    method, reference = compared_pair(table)
    rivals = [name for name in dict.fromkeys((reference, UNCALIBRATED)) if name in table.methods and name != method]
    tones = [{rival: _tone(table, method, rival, level) for rival in rivals} for level in judged_levels(table)]
    numbers = _numbers(table, method, reference)
    # Even if the method is better at some levels and worse at others.
    clear = {_worst(one) for one in tones} - {"even"}
    tone: Tone = clear.pop() if len(clear) == 1 else "even"
    if not rivals:
        headline = f"{numbers[0].upper()}{numbers[1:]}"
    elif untested := _untested(table):
        tone, headline = "untested", f"{untested}: {numbers}"
    else:
        headline = f"{_claim(table, method, reference, tones)}: {numbers}"
    details = tuple(_details(table, method, reference))
    return Verdict(tone, f"{headline}. {A_POINT}", details, method, reference)


def _tone(table: EvaluationTable, method: str, rival: str, level: Level) -> Tone:
    """Return whether the method is clearly and significantly better or worse, also in the rounded numbers."""
    change = table.difference(method, rival, severity=level)
    largest = max(table.estimate(name, severity=level).estimate for name in (method, rival))
    looks_equal = error_text(table, method, level) == error_text(table, rival, level)
    if not change.excludes_zero or looks_equal or abs(change.estimate) < SMALLEST_CHANGE * largest:
        return "even"
    return "good" if change.estimate < 0 else "bad"


def _worst(tones: Mapping[str, Tone]) -> Tone:
    return next((tone for tone in ("bad", "even", "good") if tone in tones.values()), "even")


def _untested(table: EvaluationTable) -> str:
    """Return the reason why the difference was not tested, or an empty text."""
    small = {level: size for level, size in table.too_small.items() if level in table.severities}
    if small:
        level = min(small, key=lambda level: small[level])
        why = f"with fewer than {FEWEST_SAMPLES}, the accuracy alone is uncertain by 5 points or more"
        return f"Too few samples for a verdict ({small[level]} of {level_name(table, level)}; {why})"
    return "" if table.replicates else "Not tested, since there are no bootstrap resamples"


def _claim(table: EvaluationTable, method: str, reference: str, tones: Sequence[Mapping[str, Tone]]) -> str:
    """Return what the headline claims before its numbers."""
    missing, label, kind = missing_counterpart(table, method), method_label(method), method_of(table, method)
    untold = "" if missing is None else f", but is not compared with {method_label(missing)}"
    at_level, against = [_worst(one) for one in tones], tones[0]
    tone = at_level[0]
    if len(at_level) > 1 and {*at_level} != {"even"}:
        rivals = ["no calibration" if one == UNCALIBRATED else method_label(one) for one in against]
        counts = {
            f"better than {' and '.join(rivals)}": at_level.count("good"),
            f"worse than {' or '.join(rivals)}": at_level.count("bad"),
        }
        parts = [f"{found} on {count}" for found, count in counts.items() if count]
        return f"{label} is {listed(parts)} of {len(at_level)} test sets{untold}"
    name = label if missing is None else f"Calibration with {label}"
    if tone == "good":
        gain = f"{'DAC' if has_dac(kind) else label} improves calibration"
        if missing is not None:  # the counterpart without DAC may be as good
            gain = f"{name} improves the confidences"
        return f"{gain}{' under shift' if len(table.severities) > 1 else ''}{untold}"
    if tone != against.get(reference, "even"):
        # Better than the reference but not than the uncalibrated softmax: no improvement.
        name, reference = "Calibration", UNCALIBRATED
    other = method_label(reference)
    if reference == UNCALIBRATED:
        found = f"{name} makes no clear difference", f"{name} makes the confidences worse"
    elif has_dac(kind) and base_method(kind) == method_of(table, reference):
        found = f"DAC makes no clear difference to {other}", f"DAC makes {other} worse"
    else:
        found = f"{name} is not clearly better than {other}", f"{name} is worse than {other}"
    return f"{found[tone == 'bad']} here"


def _details(table: EvaluationTable, method: str, reference: str) -> Iterator[str]:
    """Yield further numbers, one sentence each."""
    missing, clean_fit = missing_counterpart(table, method), clean_fit_of(table, method)
    told, label, worst = told_shifts(table, method), method_label(method), table.severities[-1]
    untold = [shift for shift in table.natural_shifts if shift not in told]
    if missing is not None:
        yield (
            f"What DAC adds to {method_label(missing)} is unknown. To see it, pass the validation set of the fit with "
            f"--val, or evaluate make_calibrator({missing!r}).fit(validation) as well."
        )
    yield _at_the_strongest_shift(table, method, reference)
    if clean_fit is not None:
        error = _error_by_level(table, clean_fit)
        yield f"With DAC fitted on clean data alone, as in its paper, the error is {error}."
    for level in judged_levels(table):
        best = better_than(table, _shown(table, method, reference), level)
        if best is None or level in untold:
            continue
        if level is None:
            yield f"{method_label(best)} has the lowest error: {_error_by_level(table, best)}."
        else:
            where, error = level_place(table, level), error_text(table, best, level)
            yield f"{method_label(best)} has the lowest error {where}: {error} points."
    clean = (0,) if 0 in table.severities[:-1] else ()
    for level in (*clean, *told) if method != reference else ():
        yield _compared_at(table, method, reference, level)
    if untold:
        errors = [table.estimate(method, severity=shift).estimate for shift in untold]
        yield (
            f"Of {len(table.natural_shifts)} natural shifts, these are the ones with the largest errors. On the others "
            f"the errors are {points(min(errors))} to {points(max(errors))} points with {label}."
        )
    if len(table.severities) > 1:
        bound = ""
        if ORACLE in table.methods:
            left = error_text(table, ORACLE, worst)
            bound = f" (a temperature fitted to the labels of the test set itself would leave {left})"
        yield f"At {level_name(table, worst)} an error of {error_text(table, method, worst)} points remains{bound}."
    if UNCALIBRATED in table.methods and method != UNCALIBRATED:
        before, after = (table.estimate(name, "accuracy").estimate for name in (UNCALIBRATED, method))
        if abs(before - after) < SAME_ACCURACY:
            yield "The predicted classes do not change, only the confidences."
        else:
            change = f"from {percent(before, 1)} to {percent(after, 1)}"
            yield f"The predicted classes change: the mean accuracy changes {change}."
    if explained := explain_names(method_of(table, method), missing or method_of(table, reference)):
        yield explained


def _numbers(table: EvaluationTable, method: str, reference: str) -> str:
    """Return the errors of the shown methods; on natural shifts, only the numbers in the same order."""
    first, *others = _shown(table, method, reference)
    level = judged_levels(table)[0]
    average = " on average" if len(table.severities) > 1 or len(clean_sets(table)) > 1 else ""
    confidences = "uncalibrated confidences" if first == UNCALIBRATED else f"with {method_label(first)} the confidences"
    where = "" if level is None else f"{level_place(table, level)} "
    text = f"{where}{confidences} are off by {error_text(table, first, level)} points{average}"
    if others:
        text += f"; {listed([f'with {method_label(name)} by {error_text(table, name, level)}' for name in others])}"
    for shift in () if level is None else told_shifts(table, method):
        errors = [error_text(table, name, shift) for name in (first, *others)]
        text += f". On {level_name(table, shift)} by {listed(errors)}"
    return text


def _shown(table: EvaluationTable, method: str, reference: str) -> list[str]:
    return [name for name in dict.fromkeys((UNCALIBRATED, reference, method)) if name in table.methods]


def _at_the_strongest_shift(table: EvaluationTable, method: str, reference: str) -> str:
    worst = table.severities[-1]
    accuracy = table.estimate(method, "accuracy", worst).estimate
    claims = []
    for name in _shown(table, method, reference):
        claim = percent(table.estimate(name, "mean_confidence", worst).estimate)
        claims.append(f"{claim} {'uncalibrated' if name == UNCALIBRATED else 'with ' + method_label(name)}")
    where = level_place(table, worst).capitalize()
    if len(table.severities) > 1:
        where += ", the strongest shift,"
    elif worst == 0 and len(clean_sets(table)) > 1:
        where += f" ({listed(clean_sets(table))})"
    return f"{where} the classifier is right {percent(accuracy)} of the time. Its mean confidence is {listed(claims)}."


def _error_by_level(table: EvaluationTable, method: str) -> str:
    """Return the error over the severities and on each natural shift, which no mean includes."""
    where = level_place(table, table.severities[0])
    if len(table.severities) > 1:
        where = "on average over all severities"
    elif len(clean_sets(table)) > 1:
        where = f"on average over {level_name(table, 0)}"
    natural = [f"{error_text(table, method, one)} on {level_name(table, one)}" for one in table.natural_shifts]
    return listed([f"{error_text(table, method)} points {where}", *natural])


def _compared_at(table: EvaluationTable, method: str, reference: str, level: int | str) -> str:
    """Compare the method with its reference at one severity or on a natural shift."""
    where, tone = f"On {level_name(table, level)}", _tone(table, method, reference, level)
    after, before = (error_text(table, name, level) for name in (method, reference))
    if isnan(table.difference(method, reference, severity=level).low):
        return f"{where} the error is {after} points, against {before} with {method_label(reference)} (not tested)."
    if tone == "even":
        return f"{where} there is no clear difference: {after} against {before} points."
    word = "falls" if tone == "good" else "rises"
    return f"{where} the error {word} from {before} to {after} points with {method_label(method)}."
