"""The report's judgement in words, made from the numbers alone: it says so when DAC does not help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import TYPE_CHECKING, Literal

from densecal.calibrators.names import DAC, ORACLE, SHIFT_FITTED, UNCALIBRATED, base_method, has_dac, method_label
from densecal.calibrators.registry import METHODS
from densecal.report.words import percent, points, severity_name

if TYPE_CHECKING:
    from densecal.evaluation import EvaluationTable
    from densecal.metrics import Interval

Tone = Literal["good", "even", "bad"]
SAME_ACCURACY = 1e-9
A_POINT = "A point is one percentage point between claimed and real accuracy."
NO_GAIN: dict[Tone, str] = {"even": "makes no measurable difference", "bad": "does not help"}
NEEDED_MEASURES = ("ece", "accuracy", "mean_confidence")
"""What a table must hold for a verdict and a report."""


@dataclass(frozen=True)
class Verdict:
    """What the numbers say, for somebody who reads nothing else.

    Attributes
    ----------
    tone : {"good", "even", "bad"}
        Whether the method is better than what it is compared with and than the softmax, beyond chance.
    headline : str
        What was found, with the numbers, and what a point is.
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
    >>> judge(evaluate_conditions(fitted, [Condition("clean", test)])).headline  # doctest: +ELLIPSIS
    'The confidences become more honest: uncalibrated, they miss the truth by 23.2 points; with TS by 0.0. A...'
    """
    _check_measures(table)
    method, reference = compared_pair(table)
    rivals = [name for name in dict.fromkeys((reference, UNCALIBRATED)) if name in table.methods and name != method]
    tones = {rival: _tone(table.difference(method, rival)) for rival in rivals}
    headline = _headline(table, method, reference, tones)
    details = [
        _at_the_strongest_shift(table, method, reference),
        _as_in_the_paper(table, method),
        _on_clean_data(table, method, reference),
        _what_is_left(table, method),
        _about_accuracy(table, method),
        _what_the_names_mean(method, reference),
    ]
    return Verdict(_worst(tones), headline, tuple(detail for detail in details if detail), method, reference)


def _check_measures(table: EvaluationTable) -> None:
    missing = [name for name in NEEDED_MEASURES if name not in table.measures]
    if missing:
        raise ValueError(
            f"A verdict or report needs the measures {', '.join(NEEDED_MEASURES)}, and the table lacks "
            f"{', '.join(missing)}. Evaluate with these among the measures, or leave measures= at its default."
        )


def _tone(change: Interval) -> Tone:
    if not change.excludes_zero:
        return "even"
    return "good" if change.estimate < 0 else "bad"


def _headline(table: EvaluationTable, method: str, reference: str, tones: Mapping[str, Tone]) -> str:
    """Begin with what was found, give the numbers from uncalibrated on, and say what a point is."""
    tone, against = _worst(tones), tones.get(reference, "even")
    if method == reference or not table.has_intervals:
        chance = "" if method == reference else "; without resamples nothing tells whether that is chance"
        numbers = _numbers(table, method, reference, "the confidences")
        return f"{numbers[0].upper()}{numbers[1:]}{chance}. {A_POINT}"
    if tone == "good":
        moved = " when the data moves" if len(table.severities) > 1 else ""
        return f"The confidences become more honest{moved}: {_numbers(table, method, reference, 'they')}. {A_POINT}"
    # Better than its counterpart, and yet no better than the classifier as it is: that is no success.
    found = _no_gain(method, reference, tone) if tone == against else f"Calibration {NO_GAIN[tone]}"
    return f"{found} here: {_numbers(table, method, reference, 'the confidences')}. {A_POINT}"


def _no_gain(method: str, reference: str, tone: Tone) -> str:
    name, other = _label(method), method_label(reference)
    if _is_pair(method, reference):
        return f"DAC {'makes no measurable difference to' if tone == 'even' else 'does not help'} {other}"
    if reference == UNCALIBRATED:
        return f"{name} {NO_GAIN[tone]}"
    return f"{name} {'is no measurable improvement over' if tone == 'even' else 'does not help more than'} {other}"


def _numbers(table: EvaluationTable, method: str, reference: str, confidences: str) -> str:
    first, *others = (name for name in dict.fromkeys((UNCALIBRATED, reference, method)) if name in table.methods)
    error = {name: points(table.estimate(name).estimate) for name in (first, *others)}
    average = " on average" if len(table.severities) > 1 else ""
    lead = "uncalibrated," if first == UNCALIBRATED else f"with {_label(first)}"
    text = f"{lead} {confidences} miss the truth by {error[first]} points{average}"
    told = []
    for name in others:
        pair = name == method and _is_pair(method, reference)
        before = _label(name.split("+")[0]) + " before it" if pair else _label(name)
        told.append(f"with {before} by {error[name]}")
    return f"{text}; {', '.join(told)}" if told else text


def _is_pair(method: str, reference: str) -> bool:
    return has_dac(method) and base_method(method) == reference != UNCALIBRATED


def _label(method: str) -> str:
    return method_label(method).replace("(shift fit)", "(fitted for shift)")


def _worst(tones: Mapping[str, Tone]) -> Tone:
    return next((tone for tone in ("bad", "even", "good") if tone in tones.values()), "even")


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


def _what_the_names_mean(method: str, reference: str) -> str:
    parts = dict.fromkeys(part.replace(SHIFT_FITTED, DAC) for name in (reference, method) for part in name.split("+"))
    meanings = []
    for part in parts:
        if part in METHODS:
            full = METHODS[part].full_name
            meanings.append(f"{method_label(part)} is {full[0].lower()}{full[1:]}")
    farther = ", which makes a classifier less sure the farther an input lies from its training data"
    return "; ".join(m + farther if m.startswith("DAC ") else m for m in meanings) + "." if meanings else ""
