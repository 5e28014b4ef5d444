from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from densecal import Outputs
from densecal.evaluation import Condition, EvaluationTable, Predictions
from densecal.report.comparison import compared_pair
from densecal.report.sections import compared_methods
from densecal.report.verdict import judge

SAMPLES = 100


def made_up(errors, *, accuracy=None, spread=0.002):
    """A table of the given ECEs, method by severity, whose resamples lie close to them."""
    severities = len(next(iter(errors.values())))
    outputs = Outputs(np.tile([2.0, 1.0], (SAMPLES, 1)), labels=np.zeros(SAMPLES, int))
    conditions = tuple(Condition("noise" if s else "clean", outputs, severity=s) for s in range(severities))
    rng = np.random.default_rng(0)
    values, replicates, predictions = {}, {}, {}
    for method, row in errors.items():
        values[method, "ece"] = np.array(row)
        values[method, "accuracy"] = np.full(severities, (accuracy or {}).get(method, 0.7))
        values[method, "mean_confidence"] = np.array(row) + 0.7
        for measure in ("ece", "accuracy", "mean_confidence"):
            noise = rng.normal(0, spread if measure == "ece" else 0, (severities, 200))
            replicates[method, measure] = values[method, measure][:, None] + noise
        for condition in conditions:
            predictions[method, str(condition)] = Predictions(np.full(SAMPLES, 0.9), np.arange(SAMPLES) % 4 > 0)
    return EvaluationTable(tuple(errors), conditions, values, replicates, predictions)


def test_a_clear_gain_is_told_from_the_uncalibrated_error_on_and_says_what_a_point_is():
    table = made_up({"uncalibrated": [0.1, 0.3], "ets": [0.02, 0.2], "dac+ets": [0.02, 0.1]})
    verdict = judge(table)
    assert verdict.tone == "good"
    assert (verdict.method, verdict.reference) == ("dac+ets", "ets")
    assert verdict.headline == (
        "DAC improves calibration under shift: uncalibrated confidences are off by 20.0 points on average; with ETS by "
        "11.0 and with DAC + ETS by 6.0. A point is a difference of one percentage point between confidence and "
        "accuracy."
    )


def test_the_methods_names_are_explained_to_who_does_not_know_them():
    details = judge(made_up({"uncalibrated": [0.1, 0.3], "ets": [0.02, 0.2], "dac+ets": [0.02, 0.1]})).details
    assert details[-1] == (
        "ETS is ensemble temperature scaling; DAC is density-aware calibration, which lowers the confidence of "
        "inputs far from the training data."
    )


def test_the_shift_fit_is_explained():
    details = judge(made_up({"uncalibrated": [0.1, 0.3], "ets": [0.02, 0.2], "dac-shift+ets": [0.02, 0.1]})).details
    assert details[-1].endswith("training data (shift fit: fitted on perturbed validation data as well).")


def test_a_gain_over_the_same_method_is_no_praise_where_the_classifier_was_better_as_it_was():
    verdict = judge(made_up({"uncalibrated": [0.02, 0.02], "ets": [0.1, 0.2], "dac+ets": [0.05, 0.1]}))
    assert verdict.tone == "bad"
    assert verdict.headline.startswith(
        "Calibration makes the confidences worse here: uncalibrated confidences are off by 2.0"
    )
    verdict = judge(made_up({"uncalibrated": [0.05, 0.1], "ets": [0.1, 0.2], "dac+ets": [0.05, 0.1]}))
    assert verdict.tone == "even"
    assert verdict.headline.startswith("Calibration makes no clear difference here: uncalibrated confidences")


@pytest.mark.parametrize(("before", "after"), [(0.0121, 0.0124), (0.0124, 0.0121)])
def test_numbers_that_are_equal_as_shown_are_called_neither_better_nor_worse(before, after):
    table = made_up({"uncalibrated": [before], "ts": [after]}, spread=1e-6)
    assert table.difference("ts", "uncalibrated").excludes_zero
    verdict = judge(table)
    assert verdict.tone == "even"
    assert verdict.headline.startswith(
        "TS makes no clear difference here: uncalibrated confidences are off by 1.2 points; with TS by 1.2."
    )
    details = judge(made_up({"ets": [before, 0.2], "dac+ets": [after, 0.1]}, spread=1e-6)).details
    assert "On clean data there is no clear difference: 1.2 against 1.2 points." in details


def test_a_difference_within_chance_is_called_no_clear_difference():
    table = made_up({"uncalibrated": [0.1, 0.3], "ets": [0.02, 0.2], "dac+ets": [0.02, 0.199]}, spread=0.01)
    verdict = judge(table)
    assert verdict.tone == "even"
    assert verdict.headline.startswith(
        "DAC makes no clear difference to ETS here: uncalibrated confidences are off by 20.0 points on average; "
        "with ETS by 11.0 and with DAC + ETS by 10.9."
    )


def test_a_gain_of_a_small_part_of_the_error_is_no_praise_however_certain_it_is():
    """A reader who only sees "DAC improves calibration" would trust confidences that are off by 24 points."""
    errors = {"uncalibrated": [0.02, 0.468], "ets": [0.02, 0.468], "dac+ets": [0.018, 0.466]}
    table = made_up(errors, spread=1e-5)
    assert table.difference("dac+ets", "ets").excludes_zero
    verdict = judge(table)
    assert verdict.tone == "even"
    assert verdict.headline.startswith(
        "DAC makes no clear difference to ETS here: uncalibrated confidences are off by 24.4 points on average; with "
        "ETS by 24.4 and with DAC + ETS by 24.2."
    )


def test_without_resamples_it_gives_the_numbers_and_claims_neither_gain_nor_chance():
    table = made_up({"uncalibrated": [0.1, 0.3], "ets": [0.02, 0.2], "dac+ets": [0.02, 0.1]})
    verdict = judge(replace(table, replicates={}))
    assert verdict.tone == "untested"
    assert verdict.headline.startswith(
        "Not tested, since there are no bootstrap resamples: uncalibrated confidences are off by 20.0 points on "
        "average; with ETS by 11.0 and with DAC + ETS by 6.0."
    )
    assert "On clean data the error is 2.0 points, against 2.0 with ETS (not tested)." in verdict.details


def test_too_few_samples_at_one_severity_are_too_few_for_a_verdict_and_for_its_intervals():
    table = made_up({"uncalibrated": [0.1, 0.3], "ets": [0.02, 0.2], "dac+ets": [0.02, 0.1]})
    clean, noise = table.conditions
    few = replace(table, conditions=(clean, replace(noise, outputs=noise.outputs[:99])))
    verdict = judge(few)
    assert verdict.tone == "untested"
    assert verdict.headline.startswith(
        "Too few samples for a verdict (99 of severity 1; with fewer than 100, the accur"
    )
    assert np.isnan(few.difference("dac+ets", "ets").low) and np.isnan(few.estimate("ets", severity=1).high)
    assert few.estimate("ets", severity=0).low > 0 and not few.has_intervals
    halves = [replace(noise, name=name, outputs=noise.outputs[:50]) for name in ("fog", "rain")]
    several = {key: found[[0, 1, 1]] for key, found in {**table.values}.items()}
    drawn = {key: found[[0, 1, 1]] for key, found in table.replicates.items()}
    enough = replace(table, conditions=(clean, *halves), values=several, replicates=drawn)
    assert judge(enough).tone == "good", "the sets of a severity count together"


def test_it_says_so_when_dac_makes_things_worse():
    table = made_up({"uncalibrated": [0.1, 0.3], "ets": [0.02, 0.1], "dac+ets": [0.02, 0.2]})
    verdict = judge(table)
    assert verdict.tone == "bad"
    assert "DAC makes ETS worse here" in verdict.headline


def test_a_cost_on_clean_data_is_told():
    table = made_up({"uncalibrated": [0.1, 0.3], "ets": [0.02, 0.2], "dac+ets": [0.05, 0.1]})
    assert "On clean data the error rises from 2.0 to 5.0 points with DAC + ETS." in judge(table).details


def with_natural_shift(errors, *names):
    table = made_up(errors)
    clean, *others = table.conditions
    natural = [replace(one, name=name, severity=0, natural=True) for one, name in zip(others, names, strict=True)]
    return replace(table, conditions=(clean, *natural))


def test_without_severities_the_verdict_is_about_clean_data_and_every_natural_shift():
    errors = {"uncalibrated": [0.1, 0.3], "ts": [0.02, 0.1], "dac": [0.02, 0.05]}
    verdict = judge(with_natural_shift(errors, "abroad"))
    assert verdict.tone == "good"
    assert verdict.headline.startswith(
        "DAC is better than TS and no calibration on 1 of 2 test sets: on clean data uncalibrated confidences "
        "are off by 10.0 points; with TS by 2.0 and with DAC by 2.0. On abroad (natural shift) by 30.0, 10.0 and 5.0."
    )


def test_the_clean_fit_is_told_with_the_sets_that_its_error_is_of():
    errors = {"uncalibrated": [0.1, 0.3], "ets": [0.03, 0.13], "dac+ets": [0.007, 0.085], "dac-shift+ets": [0.02, 0.05]}
    sentence = "With DAC fitted on clean data alone, as in its paper, the error is"
    details = judge(with_natural_shift(errors, "abroad")).details
    assert f"{sentence} 0.7 points on clean data and 8.5 on abroad (natural shift)." in details
    assert f"{sentence} 4.6 points on average over all severities." in judge(made_up(errors)).details


def test_the_best_method_is_told_and_shown_if_it_is_not_the_one_compared():
    errors = {"uncalibrated": [0.1, 0.3], "ts": [0.03, 0.13], "mine": [0.02, 0.04], "paper": [0.007, 0.085]}
    table = replace(with_natural_shift(errors, "abroad"), method_names={"mine": "dac-shift", "paper": "dac+ets"})
    verdict = judge(table)
    assert verdict.method == "mine"
    assert "paper has the lowest error on clean data: 0.7 points." in verdict.details
    assert not any("lowest error on abroad" in detail for detail in verdict.details)
    table = made_up({"uncalibrated": [0.3], "spl": [0.1], "dac+spl": [0.09], "ir": [0.05]})
    assert "IR has the lowest error: 5.0 points on clean data." in judge(table).details
    assert compared_methods(table, judge(table)) == ["uncalibrated", "spl", "dac+spl", "ir"]


def test_of_methods_with_dac_the_best_is_compared_with_the_softmax_if_no_other_reference_is_there():
    table = made_up({"uncalibrated": [0.3], "mine": [0.1], "paper": [0.05]})
    table = replace(table, method_names={"mine": "dac", "paper": "dac+ets"})
    assert compared_pair(table) == ("paper", "uncalibrated")


def test_natural_shifts_that_dac_improves_and_worsens_are_counted():
    errors = {"uncalibrated": [0.1, 0.3, 0.3], "ts": [0.02, 0.1, 0.1], "dac": [0.02, 0.05, 0.2]}
    verdict = judge(with_natural_shift(errors, "abroad", "night"))
    assert verdict.tone == "even"
    assert verdict.headline.startswith(
        "DAC is better than TS and no calibration on 1 and worse than TS or no calibration on 1 of 3 test sets: on"
    )
    errors = {"uncalibrated": [0.1, 0.3], "ts": [0.02, 0.1], "dac": [0.02, 0.1]}
    verdict = judge(with_natural_shift(errors, "abroad"))
    assert verdict.tone == "even"
    assert verdict.headline.startswith("DAC is not clearly better than TS here: on clean data uncalibrated")


def test_of_many_natural_shifts_the_worst_are_told_and_the_range_of_the_others():
    before, after = [0.02, 0.1, 0.2, 0.11, 0.3, 0.12], [0.02, 0.05, 0.15, 0.06, 0.25, 0.07]
    table = with_natural_shift({"uncalibrated": before, "ts": before, "dac": after}, *"abcde")
    verdict = judge(table)
    assert (
        "On d (natural shift) by 30.0, 30.0 and 25.0. On b (natural shift) by 20.0, 20.0 and 15.0." in verdict.headline
    )
    compared = [detail.split(" the error ")[0] for detail in verdict.details if " the error falls " in detail]
    assert compared == ["On d (natural shift)", "On b (natural shift)", "On e (natural shift)"]
    assert (
        "Of 5 natural shifts, these are the ones with the largest errors. On the others the errors are 5.0 to 6.0 "
        "points with DAC."
    ) in verdict.details


def test_what_is_left_of_the_error_is_told_beside_the_oracles():
    table = made_up({"uncalibrated": [0.1, 0.3], "ets": [0.02, 0.2], "dac+ets": [0.02, 0.1], "oracle": [0.01, 0.03]})
    assert any("error of 10.0 points remains" in d and "would leave 3.0" in d for d in judge(table).details)


def test_changed_answers_are_told():
    errors = {"uncalibrated": [0.1, 0.3], "ir": [0.02, 0.2]}
    verdict = judge(made_up(errors, accuracy={"uncalibrated": 0.7, "ir": 0.69}))
    assert any("predicted classes change" in detail for detail in verdict.details)


def test_the_best_method_with_dac_is_compared_with_the_same_method_without_it():
    table = made_up({"uncalibrated": [0.3], "ts": [0.1], "ets": [0.2], "dac+ts": [0.09], "dac+ets": [0.05]})
    assert compared_pair(table) == ("dac+ets", "ets")


def test_methods_are_paired_by_what_they_are_and_not_by_their_names():
    errors = {"uncalibrated": [0.3, 0.3], "base": [0.2, 0.2], "paper": [0.1, 0.1], "mine": [0.05, 0.05]}
    names = {"base": "ets", "paper": "dac+ets", "mine": "dac-shift+ets"}
    verdict = judge(table := replace(made_up(errors), method_names=names))
    assert (verdict.method, verdict.reference) == ("mine", "base")
    assert verdict.headline.startswith("DAC improves calibration under shift")
    assert any("DAC fitted on clean data alone" in detail and "10.0 points" in detail for detail in verdict.details)
    assert compared_methods(table, verdict) == ["uncalibrated", "base", "paper", "mine"]
    assert compared_pair(replace(made_up({"ts": [0.2], "dac+ts": [0.1]}), method_names={"dac+ts": "ir"}))[1] == "ts"


@pytest.mark.parametrize("dac", ["dac", "dac-shift"])
def test_dac_alone_is_compared_with_temperature_scaling_which_it_would_be_without_distances(dac):
    errors = {"uncalibrated": [0.3], "ts": [0.1], "ets": [0.09], dac: [0.07]}
    assert compared_pair(made_up(errors)) == (dac, "ts")
    assert compared_methods(made_up(errors), judge(made_up(errors))) == ["uncalibrated", "ts", dac]
    del errors["ts"]
    assert compared_pair(made_up(errors)) == (dac, "ets")
    del errors["ets"]
    assert compared_pair(made_up(errors)) == (dac, "uncalibrated")


def test_dac_alone_that_is_worse_than_temperature_scaling_is_not_praised_for_beating_the_softmax():
    verdict = judge(made_up({"uncalibrated": [0.1, 0.3], "ts": [0.02, 0.1], "dac": [0.02, 0.2]}))
    assert verdict.tone == "bad"
    assert "DAC is worse than TS here" in verdict.headline


@pytest.mark.parametrize(("dac", "label", "missing"), [("dac", "TS", "ts"), ("dac+ets", "ETS", "ets")])
def test_dac_gets_no_credit_for_what_its_counterpart_without_dac_may_do_as_well(dac, label, missing):
    name = dac.upper().replace("+", " + ")
    verdict = judge(made_up({"uncalibrated": [0.1, 0.3], dac: [0.02, 0.02]}))
    assert verdict.tone == "good"
    assert verdict.headline.startswith(
        f"Calibration with {name} improves the confidences under shift, but is not compared with {label}: uncalibrated "
        f"confidences are off by 20.0 points on average; with {name} by 2.0."
    )
    assert verdict.details[0] == (
        f"What DAC adds to {label} is unknown. To see it, pass the validation set of the fit with --val, or evaluate "
        f"make_calibrator({missing!r}).fit(validation) as well."
    )
    assert verdict.details[-1].startswith(f"{label} is ") and "DAC is density-aware" in verdict.details[-1]
    for error, found in ((0.1, "no clear difference"), (0.4, "the confidences worse")):
        headline = judge(made_up({"uncalibrated": [0.1, 0.1], dac: [error, error]})).headline
        assert headline.startswith(f"Calibration with {name} makes {found} here")
    headline = judge(with_natural_shift({"uncalibrated": [0.1, 0.3], dac: [0.02, 0.02]}, "abroad")).headline
    assert headline.startswith(
        f"{name} is better than no calibration on 2 of 2 test sets, but is not compared with {label}: on clean data"
    )


def test_a_pair_is_preferred_to_dac_alone_that_has_only_the_softmax_to_compare_with():
    table = made_up({"uncalibrated": [0.3], "spl": [0.1], "dac": [0.05], "dac+spl": [0.09]})
    assert compared_pair(table) == ("dac+spl", "spl")


def test_without_a_pair_the_best_method_is_compared_with_the_softmax():
    assert compared_pair(made_up({"uncalibrated": [0.3], "ts": [0.1], "ets": [0.2]})) == ("ts", "uncalibrated")


def test_a_single_method_is_described_alone():
    assert judge(made_up({"ts": [0.1]})).headline.startswith("With TS the confidences are off by 10.0 points. A ")


def test_without_the_uncalibrated_error_the_two_methods_alone_are_told():
    headline = judge(made_up({"ets": [0.02, 0.2], "dac+ets": [0.02, 0.1]})).headline
    assert "shift: with ETS the confidences are off by 11.0 points on average; with DAC + ETS by 6.0." in headline


def test_dac_alone_is_named_as_such_beside_temperature_scaling():
    headline = judge(made_up({"uncalibrated": [0.1, 0.3], "ts": [0.02, 0.2], "dac-shift": [0.02, 0.1]})).headline
    assert "points on average; with TS by 11.0 and with DAC (shift fit) by 6.0." in headline


@pytest.mark.parametrize("severities", [1, 4])
def test_words_about_shift_appear_only_where_there_is_shift(severities):
    table = made_up({"uncalibrated": [0.3] * severities, "ts": [0.1] * severities})
    assert ("under shift" in judge(table).headline) == (severities > 1)


def test_a_shift_fit_is_named_and_compared_with_the_papers_fit_too():
    errors = {"uncalibrated": [0.1, 0.3], "ets": [0.02, 0.2], "dac+ets": [0.02, 0.15], "dac-shift+ets": [0.02, 0.1]}
    verdict = judge(made_up(errors))
    assert (verdict.method, verdict.reference) == ("dac-shift+ets", "ets")
    assert "with ETS by 11.0 and with DAC (shift fit) + ETS by 6.0." in verdict.headline
    assert any("as in its paper, the error is 8.5 points" in detail for detail in verdict.details)


def test_a_name_of_ones_own_is_not_taken_apart():
    verdict = judge(made_up({"uncalibrated": [0.1, 0.3], "my-dac": [0.02, 0.2], "my-dac-shift": [0.02, 0.1]}))
    assert verdict.method == "my-dac-shift"
    assert not any("its paper" in detail for detail in verdict.details)
