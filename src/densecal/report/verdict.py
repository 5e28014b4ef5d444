"""The report's judgement in words, made from the numbers alone: it says so when DAC does not help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isnan
from typing import TYPE_CHECKING, Literal

from densecal.appearance import (
    DAC,
    ORACLE,
    SHIFT_FITTED,
    UNCALIBRATED,
    base_method,
    has_dac,
    is_shift_fitted,
    method_label,
)
from densecal.report.words import percent, points, severity_name

if TYPE_CHECKING:
    from densecal.evaluation import EvaluationTable

Tone = Literal["good", "even", "bad"]
SAME_ACCURACY = 1e-9
NEEDED_MEASURES = ("ece", "accuracy", "mean_confidence")
"""What a table must hold for a verdict and a report."""


@dataclass(frozen=True)
class Verdict:
    """What the numbers say, for somebody who reads nothing else.

    Attributes
    ----------
    tone : {"good", "even", "bad"}
        Whether the method is better than what it is compared with, beyond chance.
    headline : str
        One sentence.
    details : tuple of str
        The figures behind it.
    method, reference : str
        The method judged, and the one it is compared with.

    Examples
    --------
    >>> Verdict("even", "No measurable difference.", (), "dac+ts", "ts").tone
    'even'
    """

    tone: Tone
    headline: str
    details: tuple[str, ...]
    method: str
    reference: str


def compared_pair(table: EvaluationTable) -> tuple[str, str]:
    """Return the method to judge and the one to compare it with: the best with DAC and the same without it.

    DAC alone is compared with temperature scaling, then ETS, then the softmax, whichever is there first. Without such
    a pair it is the best method and the uncalibrated softmax, or the first two methods.
    """
    real = [method for method in table.methods if method != ORACLE]

    def error(method: str) -> float:
        return table.estimate(method).estimate

    pairs = {method: partner for method in real if has_dac(method) and (partner := _without_dac(method, real))}
    # Against nothing but the softmax every method shines; with a calibrated counterpart the comparison is fair.
    pairs = {method: partner for method, partner in pairs.items() if partner != UNCALIBRATED} or pairs
    if pairs:
        best = min(pairs, key=error)
        return best, pairs[best]
    calibrated = [method for method in real if method != UNCALIBRATED] or real
    best = min(calibrated, key=error)
    others = [method for method in real if method != best]
    reference = UNCALIBRATED if UNCALIBRATED in others else others[0] if others else best
    return best, reference


def _without_dac(method: str, methods: Sequence[str]) -> str | None:
    """Return what a method with DAC would be without it, among some methods: DAC of one temperature is TS."""
    base = base_method(method)
    wanted = ("ts", "ets", UNCALIBRATED) if base == UNCALIBRATED else (base,)
    return next((name for name in wanted if name in methods), None)


def judge(table: EvaluationTable) -> Verdict:
    """Compare the best method with its counterpart and say what was found.

    The table must hold ece, accuracy and mean_confidence, as it does unless it was made with other ``measures``.

    Examples
    --------
    >>> from densecal import Outputs, TemperatureScaling
    >>> from densecal.evaluation import Condition, evaluate_conditions
    >>> test = Outputs([[4.0, 0.0]] * 40, labels=[0, 0, 0, 1] * 10)
    >>> fitted = {"ts": TemperatureScaling().fit(test.logits, test.labels)}
    >>> judge(evaluate_conditions(fitted, [Condition("clean", test)])).headline
    'TS brings the confidences closer to the truth: they miss it by 0.0 points instead of 23.2.'
    """
    _check_measures(table)
    method, reference = compared_pair(table)
    gain = table.difference(method, reference)
    tone: Tone = "even" if not gain.excludes_zero else "good" if gain.estimate < 0 else "bad"
    headline = _headline(table, method, reference, None if isnan(gain.low) else tone)
    details = [
        _at_the_strongest_shift(table, method, reference),
        _as_in_the_paper(table, method),
        _on_clean_data(table, method, reference),
        _what_is_left(table, method),
        _about_accuracy(table, method),
    ]
    return Verdict(tone, headline, tuple(detail for detail in details if detail), method, reference)


def _check_measures(table: EvaluationTable) -> None:
    missing = [name for name in NEEDED_MEASURES if name not in table.measures]
    if missing:
        raise ValueError(
            f"A verdict or report needs the measures {', '.join(NEEDED_MEASURES)}, and the table lacks "
            f"{', '.join(missing)}. Evaluate with these among the measures, or leave measures= at its default."
        )


def _headline(table: EvaluationTable, method: str, reference: str, tone: Tone | None) -> str:
    after, before = table.estimate(method).estimate, table.estimate(reference).estimate
    moved = " when the data moves" if len(table.severities) > 1 else ""
    name, other = method_label(method), method_label(reference)
    dac = has_dac(method) and base_method(method) == reference and reference != UNCALIBRATED
    if method == reference:
        return f"{name} misses the truth by {points(after)} points on average."
    if tone is None:
        return (
            f"With {name} the confidences miss the truth by {points(after)} points, with {other} by {points(before)}; "
            "without resamples nothing tells whether that is chance."
        )
    if tone == "even":
        subject = f"DAC makes no measurable difference to {other}" if dac else f"{name} is no measurable improvement"
        return (
            f"{subject} here: the confidences miss the truth by {points(after)} points, without it by {points(before)}."
        )
    if tone == "bad":
        subject = f"DAC does not help {other} here" if dac else f"{name} does not help here"
        return f"{subject}: the confidences miss the truth by {points(after)} points instead of {points(before)}."
    average = " on average" if moved else ""
    if dac:
        saved = percent(1 - after / before) if before > 0 else "0 %"
        fitted = " fitted for shift" if is_shift_fitted(method) else ""
        return (
            f"With DAC{fitted}, {other}'s confidences stay closer to the truth{moved}: they miss it by {points(after)} "
            f"points{average} instead of {points(before)}, {saved} less."
        )
    return (
        f"{name} brings the confidences closer to the truth{moved}: they miss it by {points(after)} points{average} "
        f"instead of {points(before)}."
    )


def _at_the_strongest_shift(table: EvaluationTable, method: str, reference: str) -> str:
    worst = table.severities[-1]
    accuracy = table.estimate(method, "accuracy", worst).estimate
    claims = {
        name: table.estimate(name, "mean_confidence", worst).estimate
        for name in dict.fromkeys((UNCALIBRATED, reference, method))
        if name in table.methods
    }
    told = ", ".join(
        f"{'uncalibrated' if name == UNCALIBRATED else 'with ' + method_label(name)} {percent(claim)}"
        for name, claim in claims.items()
    )
    strongest = ", the strongest shift," if len(table.severities) > 1 else ""
    where = f"At {severity_name(worst)}{strongest}" if worst else "On clean data"
    return f"{where} the classifier is right {percent(accuracy)} of the time. It claims: {told}."


def _as_in_the_paper(table: EvaluationTable, method: str) -> str:
    paper = method.replace(SHIFT_FITTED, DAC)
    if paper == method or paper not in table.methods:
        return ""
    error = points(table.estimate(paper).estimate)
    return f"Fitted on clean data alone, as in its paper, DAC leaves {error} points on average."


def _on_clean_data(table: EvaluationTable, method: str, reference: str) -> str:
    if table.severities[0] != 0 or len(table.severities) == 1 or method == reference:
        return ""
    change = table.difference(method, reference, severity=0)
    after, before = (points(table.estimate(name, severity=0).estimate) for name in (method, reference))
    if isnan(change.low):
        return f"On clean data it is {after} against {before} points."
    if not change.excludes_zero:
        return f"On clean data the two are alike: {after} against {before} points."
    word = "gains" if change.estimate < 0 else "costs"
    size = points(abs(change.estimate))
    return f"On clean data {method_label(method)} {word} {size} points: {after} against {before}."


def _what_is_left(table: EvaluationTable, method: str) -> str:
    if len(table.severities) == 1:
        return ""
    worst = table.severities[-1]
    left = table.estimate(method, severity=worst)
    text = f"It is not perfect: at {severity_name(worst)} its confidences still miss by {points(left.estimate)} points"
    if ORACLE in table.methods:
        bound = table.estimate(ORACLE, severity=worst).estimate
        text += f" (a temperature fitted to those very labels would leave {points(bound)})"
    return text + "."


def _about_accuracy(table: EvaluationTable, method: str) -> str:
    if UNCALIBRATED not in table.methods or method == UNCALIBRATED:
        return ""
    before, after = (table.estimate(name, "accuracy").estimate for name in (UNCALIBRATED, method))
    if abs(before - after) < SAME_ACCURACY:
        return "The classifier's answers are unchanged; only its confidences are."
    return f"The classifier's answers change: its mean accuracy goes from {percent(before, 1)} to {percent(after, 1)}."
