"""The verdict of a report: sentences derived from the numbers, whether DAC helps or not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isnan
from typing import TYPE_CHECKING, Literal, TypeAlias

from densecal.calibrators import DAC_NAME as DAC
from densecal.calibrators import ORACLE, UNCALIBRATED
from densecal.calibrators.registry import base_method, has_dac, method_label
from densecal.display import percent, points
from densecal.evaluation.table import FEWEST_SAMPLES
from densecal.report.comparison import (
    Level,
    better_than,
    clean_fit_of,
    compared_pair,
    judged_levels,
    method_of,
    missing_counterpart,
    told_shifts,
)
from densecal.report.text import clean_sets, explain_names, level_name, listed

if TYPE_CHECKING:
    from densecal.evaluation import EvaluationTable

Tone = Literal["good", "even", "bad", "untested"]
Tones: TypeAlias = Mapping[Level, Mapping[str, Tone]]
"""The tone against each rival at each level."""
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
    tones = {level: {rival: _tone(table, method, rival, level) for rival in rivals} for level in judged_levels(table)}
    clean = (0,) if table.severities[0] == 0 and len(table.severities) > 1 else ()
    untold = [shift for shift in table.natural_shifts if shift not in told_shifts(table, method)]
    details = (
        _how_to_compare(table, method),
        _at_the_strongest_shift(table, method, reference),
        _fitted_on_clean_data(table, method),
        *(_lowest_error(table, method, reference, level) for level in judged_levels(table) if level not in untold),
        *(_compared_at(table, method, reference, level) for level in (*clean, *told_shifts(table, method))),
        _untold_shifts(table, method, untold),
        _remaining_error(table, method),
        _accuracy(table, method),
        explain_names(method_of(table, method), missing_counterpart(table, method) or method_of(table, reference)),
    )
    untested = _untested(table) if rivals else ""
    headline = _headline(table, method, reference, tones)
    if untested:
        headline = f"{untested}: {_numbers(table, method, reference)}"
    tone: Tone = "untested" if untested else _joint_tone(tones)
    details = tuple(detail for detail in details if detail)
    return Verdict(tone, f"{headline}. {A_POINT}", details, method, reference)


def _tone(table: EvaluationTable, method: str, rival: str, level: Level) -> Tone:
    """Return whether the method is clearly and significantly better or worse, also in the rounded numbers."""
    change = table.difference(method, rival, severity=level)
    errors = [table.estimate(name, severity=level).estimate for name in (method, rival)]
    is_small = abs(change.estimate) < SMALLEST_CHANGE * max(errors) or len({*map(points, errors)}) == 1
    if not change.excludes_zero or is_small:
        return "even"
    return "good" if change.estimate < 0 else "bad"


def _worst(tones: Mapping[str, Tone]) -> Tone:
    return next((tone for tone in ("bad", "even", "good") if tone in tones.values()), "even")


def _joint_tone(tones: Tones) -> Tone:
    """Return the common tone of all levels: ``"even"`` if a method is better on some and worse on others."""
    found = {_worst(one) for one in tones.values()} - {"even"}
    return found.pop() if len(found) == 1 else "even"


def _untested(table: EvaluationTable) -> str:
    """Return the reason why the difference was not tested, or an empty text."""
    small = {level: size for level, size in table.too_small.items() if level in table.severities}
    if small:
        level = min(small, key=lambda level: small[level])
        why = f"with fewer than {FEWEST_SAMPLES}, the accuracy alone is uncertain by 5 points or more"
        return f"Too few samples for a verdict ({small[level]} of {level_name(table, level)}; {why})"
    return "" if table.replicates else "Not tested, since there are no bootstrap resamples"


def _headline(table: EvaluationTable, method: str, reference: str, tones: Tones) -> str:
    numbers = _numbers(table, method, reference)
    if method == reference:
        return f"{numbers[0].upper()}{numbers[1:]}"
    missing = missing_counterpart(table, method)
    untold = "" if missing is None else f", but is not compared with {method_label(missing)}"
    at_level = [_worst(one) for one in tones.values()]
    if len(at_level) > 1 and {*at_level} != {"even"}:
        rivals = ["no calibration" if one == UNCALIBRATED else method_label(one) for one in next(iter(tones.values()))]
        counts = {
            f"better than {' and '.join(rivals)}": at_level.count("good"),
            f"worse than {' or '.join(rivals)}": at_level.count("bad"),
        }
        parts = [f"{found} on {count}" for found, count in counts.items() if count]
        return f"{method_label(method)} is {listed(parts)} of {len(at_level)} test sets{untold}: {numbers}"
    against = next(iter(tones.values()))
    tone = _worst(against)
    if tone == "good":
        under_shift = " under shift" if len(table.severities) > 1 else ""
        gain = f"{method_label(DAC if has_dac(method_of(table, method)) else method)} improves calibration"
        if missing is not None:  # the counterpart without DAC may be as good
            gain = f"Calibration with {method_label(method)} improves the confidences"
        return f"{gain}{under_shift}{untold}: {numbers}"
    # Better than the reference but not than the uncalibrated softmax: no improvement.
    same = tone == against.get(reference, "even")
    found = _no_gain(table, method, reference, tone) if same else _no_gain(table, "Calibration", UNCALIBRATED, tone)
    return f"{found} here: {numbers}"


def _how_to_compare(table: EvaluationTable, method: str) -> str:
    missing = missing_counterpart(table, method)
    if missing is None:
        return ""
    return (
        f"What DAC adds to {method_label(missing)} is unknown. To see it, pass the validation set of the fit with "
        f"--val, or evaluate make_calibrator({missing!r}).fit(validation) as well."
    )


def _no_gain(table: EvaluationTable, method: str, reference: str, tone: Tone) -> str:
    name, other, even = method_label(method), method_label(reference), tone == "even"
    if missing_counterpart(table, method) is not None:
        name = f"Calibration with {name}"
    if reference == UNCALIBRATED:
        return f"{name} makes no clear difference" if even else f"{name} makes the confidences worse"
    kind = method_of(table, method)
    if has_dac(kind) and base_method(kind) == method_of(table, reference):
        return f"DAC makes no clear difference to {other}" if even else f"DAC makes {other} worse"
    return f"{name} is not clearly better than {other}" if even else f"{name} is worse than {other}"


def _numbers(table: EvaluationTable, method: str, reference: str) -> str:
    """Return the errors of the shown methods; on natural shifts, only the numbers in the same order."""
    first, *others = _shown(table, method, reference)
    level = judged_levels(table)[0]
    error = {name: points(table.estimate(name, severity=level).estimate) for name in (first, *others)}
    average = " on average" if len(table.severities) > 1 or len(clean_sets(table)) > 1 else ""
    confidences = "uncalibrated confidences" if first == UNCALIBRATED else f"with {method_label(first)} the confidences"
    where = "" if level is None else f"on {level_name(table, level)} "
    text = f"{where}{confidences} are off by {error[first]} points{average}"
    if others:
        text += f"; {listed([f'with {method_label(name)} by {error[name]}' for name in others])}"
    for shift in () if level is None else told_shifts(table, method):
        errors = [points(table.estimate(name, severity=shift).estimate) for name in (first, *others)]
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
    strongest = ", the strongest shift," if len(table.severities) > 1 else ""
    where = f"At {level_name(table, worst)}{strongest}" if worst else f"On {level_name(table, 0)}"
    if worst == 0 and len(clean_sets(table)) > 1:
        where += f" ({listed(clean_sets(table))})"
    return f"{where} the classifier is right {percent(accuracy)} of the time. Its mean confidence is {listed(claims)}."


def _fitted_on_clean_data(table: EvaluationTable, method: str) -> str:
    paper = clean_fit_of(table, method)
    if paper is None:
        return ""
    return f"With DAC fitted on clean data alone, as in its paper, the error is {_error_by_level(table, paper)}."


def _lowest_error(table: EvaluationTable, method: str, reference: str, level: Level) -> str:
    """Name the method with the lowest error, if it is not one of those that the headline compares."""
    best = better_than(table, _shown(table, method, reference), level)
    if best is None:
        return ""
    if level is None:
        return f"{method_label(best)} has the lowest error: {_error_by_level(table, best)}."
    error = points(table.estimate(best, severity=level).estimate)
    return f"{method_label(best)} has the lowest error on {level_name(table, level)}: {error} points."


def _error_by_level(table: EvaluationTable, method: str) -> str:
    """Return the error over the severities and on each natural shift, which no mean includes."""
    first, error = table.severities[0], points(table.estimate(method).estimate)
    if len(table.severities) > 1:
        where = "on average over all severities"
    elif len(clean_sets(table)) > 1:
        where = f"on average over {level_name(table, first)}"
    else:
        where = f"{'at' if first else 'on'} {level_name(table, first)}"
    natural = [
        f"{points(table.estimate(method, severity=shift).estimate)} on {level_name(table, shift)}"
        for shift in table.natural_shifts
    ]
    return listed([f"{error} points {where}", *natural])


def _compared_at(table: EvaluationTable, method: str, reference: str, level: int | str) -> str:
    """Compare the method with its reference at one severity or on a natural shift."""
    if method == reference:
        return ""
    where = f"On {level_name(table, level)}"
    change = table.difference(method, reference, severity=level)
    after, before = (points(table.estimate(name, severity=level).estimate) for name in (method, reference))
    if isnan(change.low):
        return f"{where} the error is {after} points, against {before} with {method_label(reference)} (not tested)."
    tone = _tone(table, method, reference, level)
    if tone == "even":
        return f"{where} there is no clear difference: {after} against {before} points."
    word = "falls" if tone == "good" else "rises"
    return f"{where} the error {word} from {before} to {after} points with {method_label(method)}."


def _untold_shifts(table: EvaluationTable, method: str, untold: list[str]) -> str:
    if not untold:
        return ""
    errors = [table.estimate(method, severity=shift).estimate for shift in untold]
    return (
        f"Of {len(table.natural_shifts)} natural shifts, these are the ones with the largest errors. On the others the "
        f"errors are {points(min(errors))} to {points(max(errors))} points with {method_label(method)}."
    )


def _remaining_error(table: EvaluationTable, method: str) -> str:
    if len(table.severities) == 1:
        return ""
    worst = table.severities[-1]
    left = points(table.estimate(method, severity=worst).estimate)
    text = f"At {level_name(table, worst)} an error of {left} points remains"
    if ORACLE in table.methods:
        bound = points(table.estimate(ORACLE, severity=worst).estimate)
        text += f" (a temperature fitted to the labels of the test set itself would leave {bound})"
    return text + "."


def _accuracy(table: EvaluationTable, method: str) -> str:
    if UNCALIBRATED not in table.methods or method == UNCALIBRATED:
        return ""
    before, after = (table.estimate(name, "accuracy").estimate for name in (UNCALIBRATED, method))
    if abs(before - after) < SAME_ACCURACY:
        return "The predicted classes do not change, only the confidences."
    return f"The predicted classes change: the mean accuracy changes from {percent(before, 1)} to {percent(after, 1)}."
