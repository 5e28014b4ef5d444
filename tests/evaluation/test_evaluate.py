from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest

from densecal import DAC, Chain, FeatureBank, Outputs, SplineCalibration, TemperatureScaling
from densecal.arrays import softmax
from densecal.errors import CalibrationWarning
from densecal.evaluation import Condition, evaluate_conditions
from densecal.metrics import (
    METRICS,
    OOD_METRICS,
    brier_score,
    classwise_calibration_error,
    expected_calibration_error,
    macro_bootstrap,
    ood_scores,
)


@pytest.fixture(scope="module")
def conditions(drifting):
    return [Condition.from_outputs(drifting[f"test-{severity}"]) for severity in range(4)]


@pytest.fixture(scope="module")
def calibrators(drifting):
    val = drifting["val"]
    bank = FeatureBank(drifting["train"].features, k=10)
    made = {"ts": TemperatureScaling(), "spl": SplineCalibration(), "dac+ts": Chain(DAC(bank), TemperatureScaling())}
    return {name: one.fit(val.logits, val.labels, features=val.features) for name, one in made.items()}


@pytest.fixture(scope="module")
def table(calibrators, conditions):
    return evaluate_conditions(calibrators, conditions, n_resamples=100)


def test_every_value_is_the_measure_of_that_calibrator_on_that_condition(table, calibrators, conditions):
    for place, condition in enumerate(conditions):
        test = condition.outputs
        probabilities = calibrators["dac+ts"].predict_proba(test.logits, features=test.features)
        expected = expected_calibration_error(probabilities, test.labels)
        assert table.values["dac+ts", "ece"][place] == pytest.approx(expected)
        assert table.values["dac+ts", "brier"][place] == pytest.approx(brier_score(probabilities, test.labels))


@pytest.mark.parametrize("sample_size", [50_000, 100])
def test_data_that_a_calibrator_was_fitted_on_are_warned_of(drifting, calibrators, sample_size):
    with pytest.warns(CalibrationWarning, match=r"mine: ts, spl, dac\+ts was fitted on these data"):
        evaluate_conditions(calibrators, [Condition("mine", drifting["val"])], n_resamples=0, sample_size=sample_size)


def mislabelled(outputs):
    return Outputs(outputs.logits, np.roll(outputs.labels, 1), outputs.features)


def test_labels_at_chance_are_warned_of_with_both_explanations(calibrators, drifting):
    sets = [Condition("good", drifting["test-0"]), Condition("fog", mislabelled(drifting["test-1"]), severity=1)]
    expected = r"no better than chance on fog, severity 1 \(accuracy .*Check that the labels.*shift is so strong"
    with pytest.warns(CalibrationWarning, match=expected) as caught:
        evaluate_conditions(calibrators, sets, n_resamples=0)
    assert "good" not in str(caught[0].message)


def test_labels_at_chance_are_found_in_a_random_sample_of_a_large_set(calibrators, drifting):
    with pytest.warns(CalibrationWarning, match="no better than chance on large"):
        evaluate_conditions(
            calibrators, [Condition("large", mislabelled(drifting["test-0"]))], n_resamples=0, sample_size=500
        )


def test_out_of_domain_sets_may_have_any_labels(calibrators, drifting):
    sets = [
        Condition("clean", drifting["test-0"]),
        Condition("no", mislabelled(drifting["test-1"]), out_of_domain=True),
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error", CalibrationWarning)
        evaluate_conditions(calibrators, sets, n_resamples=0)


def test_calibrators_without_names_and_conditions_with_names_are_type_errors(calibrators, conditions):
    with pytest.raises(TypeError, match="calibrators must map names to fitted calibrators"):
        evaluate_conditions([calibrators["ts"]], conditions)
    with pytest.raises(TypeError, match="calibrators must map names to fitted calibrators"):
        evaluate_conditions({"ts": "ts.densecal"}, conditions)
    for wrong in ({"clean": conditions[0].outputs}, conditions[0], [conditions[0].outputs]):
        with pytest.raises(TypeError, match="conditions must be a list of Condition"):
            evaluate_conditions(calibrators, wrong)


def test_the_uncalibrated_row_is_the_softmax(table, conditions):
    test = conditions[2].outputs
    expected = expected_calibration_error(softmax(test.logits), test.labels)
    assert table.estimate("uncalibrated", severity=2).estimate == pytest.approx(expected)


def test_spline_calibration_is_judged_by_its_own_top_1_score(table, calibrators, conditions):
    test = conditions[3].outputs
    correct = softmax(test.logits).argmax(1) == test.labels
    expected = expected_calibration_error(calibrators["spl"].confidence(test.logits), correct)
    assert table.estimate("spl", severity=3).estimate == pytest.approx(expected)


def test_all_is_the_mean_over_severities_whatever_the_number_of_conditions_in_each(calibrators, drifting):
    conditions = [
        Condition("clean", drifting["test-0"]),
        Condition("a", drifting["test-1"], severity=1),
        Condition("b", drifting["test-3"], severity=1),
    ]
    table = evaluate_conditions({"ts": calibrators["ts"]}, conditions, n_resamples=0)
    clean, a, b = table.values["ts", "ece"]
    assert table.estimate("ts").estimate == pytest.approx((clean + (a + b) / 2) / 2)


def test_intervals_agree_with_the_macro_bootstrap_of_the_metrics(table, calibrators, conditions):
    pairs = [(calibrators["ts"].predict_proba(c.outputs.logits), c.outputs.labels) for c in conditions]
    reference = macro_bootstrap("ece", pairs, groups=[0, 1, 2, 3], n_resamples=100)
    found = table.estimate("ts")
    assert found.estimate == pytest.approx(reference.estimate)
    # Ours reaches the estimate itself, where the mirrored interval may miss it.
    assert found.low == pytest.approx(min(reference.low, reference.estimate), abs=1e-6)
    assert found.high == pytest.approx(max(reference.high, reference.estimate), abs=1e-6)


def test_no_interval_leaves_the_range_of_its_measure_except_a_differences(drifting):
    test = drifting["test-0"][:100]
    sharp = TemperatureScaling().fit(test.logits, test.labels)
    test = Outputs(test.logits / sharp.temperature_, test.labels)
    sharp.temperature_ = 0.3
    table = evaluate_conditions({"sharp": sharp}, [Condition("few", test)])
    drawn = table.replicates["uncalibrated", "ece"][0]
    assert 2 * table.values["uncalibrated", "ece"][0] - np.quantile(drawn, 0.975) < 0, "the mirrored end must leave it"
    rows = table.rows()
    assert (rows["low"] >= 0).all()
    assert (rows[rows["metric"].isin(["ece", "accuracy", "mean_confidence"])]["high"] <= 1).all()
    assert (rows["low"] <= rows["value"]).all()
    for frame in (table.by_severity("ece"), table.overall("ece"), table.by_severity("mean_confidence")):
        assert (frame["low"] >= 0).all()
        assert (frame["high"] <= 1).all()
    assert table.difference("uncalibrated", "sharp").low < 0


def test_a_difference_is_paired(table, calibrators, conditions):
    def pairs(name):
        return [
            (calibrators[name].predict_proba(c.outputs.logits, features=c.outputs.features), c.outputs.labels)
            for c in conditions
        ]

    reference = macro_bootstrap("ece", pairs("dac+ts"), reference=pairs("ts"), groups=[0, 1, 2, 3], n_resamples=100)
    found = table.difference("dac+ts", "ts")
    assert (found.estimate, found.low, found.high) == pytest.approx(
        (reference.estimate, reference.low, reference.high), abs=1e-6
    )


def test_distances_given_with_a_condition_are_used_as_they_are(calibrators, drifting, table):
    measured = [Condition.from_outputs(calibrators["dac+ts"].measure(drifting[f"test-{s}"])) for s in range(4)]
    again = evaluate_conditions(calibrators, measured, n_resamples=0)
    np.testing.assert_allclose(again.values["dac+ts", "ece"], table.values["dac+ts", "ece"])


def test_the_oracle_is_no_worse_than_temperature_scaling_where_it_was_fitted(calibrators, conditions):
    table = evaluate_conditions({"ts": calibrators["ts"]}, conditions, oracle=True, n_resamples=0)
    assert (table.values["oracle", "brier"] <= table.values["ts", "brier"] + 1e-9).all()


def test_out_of_domain_data_are_judged_by_confidence_alone(calibrators, conditions, drifting):
    outside = Condition.from_outputs(drifting["ood"])
    table = evaluate_conditions(calibrators, [*conditions, outside], oracle=True, n_resamples=0)
    found = table.predictions["ts", str(outside)]
    assert len(found.confidence) == 200
    assert found.correct is None
    assert table.severities == (0, 1, 2, 3)


def test_out_of_domain_metrics_compare_the_clean_confidence_with_the_foreign_one(calibrators, conditions, drifting):
    outside = Condition.from_outputs(drifting["ood"])
    table = evaluate_conditions(
        calibrators, [*conditions, outside], metrics=["ece", *OOD_METRICS], oracle=True, n_resamples=40
    )
    wanted = ood_scores(
        calibrators["ts"].confidence(drifting["test-0"].logits), calibrators["ts"].confidence(drifting["ood"].logits)
    ).as_dict()
    assert table.metrics == ("ece",)
    assert table.ood_metrics == OOD_METRICS
    for metric in OOD_METRICS:
        found = table.ood_estimate("ts", outside.name, metric)
        assert found.estimate == pytest.approx(wanted[metric], rel=1e-6)
        assert 0 <= found.low <= found.estimate <= found.high <= 1
    rows = table.ood_rows()
    assert set(rows["method"]) == {"uncalibrated", "ts", "spl", "dac+ts"}, "the oracle has no labels to fit on"
    assert len(rows) == 4 * 5
    with pytest.raises(ValueError, match="condition must be one of .* got 'nowhere'"):
        table.ood_estimate("ts", "nowhere")
    with pytest.raises(ValueError, match="severity 0"):
        evaluate_conditions(calibrators, [conditions[1], outside], metrics=["auroc"])


def test_a_metric_of_ones_own_is_resampled_and_bounded_like_the_others(calibrators, conditions):
    paper = replace(METRICS["classwise_ece_sum"], name="classwise_14", options={"n_bins": 14, "reduction": "sum"})
    table = evaluate_conditions(calibrators, conditions, metrics=["ece", paper], n_resamples={"ece": 0, paper.name: 30})
    test = conditions[1].outputs
    expected = classwise_calibration_error(
        calibrators["ts"].predict_proba(test.logits), test.labels, n_bins=14, reduction="sum"
    )
    assert table.values["ts", "classwise_14"][1] == pytest.approx(expected)
    assert table.replicates["ts", "classwise_14"].shape == (4, 30)
    assert ("ts", "ece") not in table.replicates
    assert 0 < table.estimate("ts", "classwise_14").low < table.estimate("ts", "classwise_14").high <= 2


def test_a_mean_over_conditions_weighs_every_condition_alike(calibrators, drifting):
    conditions = [Condition(f"set {place}", drifting[f"test-{place}"], min(place, 1)) for place in range(4)]
    table = evaluate_conditions({"ts": calibrators["ts"]}, conditions, n_resamples=0)
    errors = table.values["ts", "ece"]
    assert table.estimate("ts", mean_over="conditions").estimate == pytest.approx(errors.mean())
    difference = table.difference("ts", "uncalibrated", mean_over="conditions")
    assert difference.estimate == pytest.approx((errors - table.values["uncalibrated", "ece"]).mean())


def test_joined_tables_are_the_table_of_all_methods(calibrators, conditions, table):
    parts = [
        evaluate_conditions({name: calibrators[name]}, conditions, uncalibrated=False, n_resamples=100)
        for name in ("ts", "dac+ts")
    ]
    joined = parts[0].join(parts[1])
    assert joined.methods == ("ts", "dac+ts")
    assert joined.difference("dac+ts", "ts") == table.difference("dac+ts", "ts")
    with pytest.raises(ValueError, match=r"differ in the conditions: \[.*\] and \['clean', 'noise, severity 1'\]"):
        joined.join(evaluate_conditions({}, conditions[:2], n_resamples=0))


def test_every_bank_is_searched_once_for_each_condition(calibrators, conditions, monkeypatch):
    searches = []
    search = FeatureBank.distances
    monkeypatch.setattr(
        FeatureBank, "distances", lambda *a, **options: searches.append(options) or search(*a, **options)
    )
    two = {"dac": calibrators["dac+ts"].stages[0], "dac+ts": calibrators["dac+ts"]}
    evaluate_conditions(two, conditions, n_resamples=0)
    assert len(searches) == len(conditions)


def test_the_tidy_table_has_a_row_for_each_method_condition_and_measure(table):
    rows = table.rows()
    assert len(rows) == 4 * 4 * 5
    assert set(rows["metric"]) == {"ece", "accuracy", "mean_confidence", "brier", "nll"}
    assert (rows["low"] <= rows["value"]).all()
    assert (rows["value"] <= rows["high"]).all()


def test_without_resamples_there_are_values_and_no_intervals(calibrators, conditions):
    table = evaluate_conditions(calibrators, conditions, n_resamples=0)
    assert not table.has_intervals
    assert table.rows()["value"].notna().all()
    assert table.rows()["low"].isna().all()


@pytest.mark.parametrize("n_resamples", [-1, 1, 19])
def test_too_few_resamples_for_an_interval_are_refused_with_the_way_out(calibrators, conditions, n_resamples):
    with pytest.raises(ValueError, match=rf"0 \(no intervals\) or at least 20, got {n_resamples}\. The default is 300"):
        evaluate_conditions(calibrators, conditions, n_resamples=n_resamples)


def test_printing_a_table_tells_what_is_in_it_and_no_replicate(table):
    text = repr(table)
    assert len(text) < 400
    assert "methods: uncalibrated, ts, spl, dac+ts" in text
    assert "test sets: clean; noise, severity 1; noise, severity 2; noise, severity 3" in text
    assert "1200 samples" in text
    assert f"ts {table.estimate('ts').estimate:.4f}" in text


def test_a_table_of_many_test_sets_and_without_ece_prints_briefly_too(calibrators, drifting):
    many = [Condition(f"set {place}", drifting["test-1"], severity=1) for place in range(30)]
    text = repr(evaluate_conditions({}, many, metrics=["brier"], n_resamples=0))
    assert len(text) < 400
    assert "30 test sets" in text
    assert "ece" not in text


def test_an_unknown_measure_is_refused_with_the_known_ones(calibrators, conditions):
    with pytest.raises(ValueError, match=r"ece.*unknown names \['eec'\]"):
        evaluate_conditions(calibrators, conditions, metrics=["eec"])


def test_a_severity_that_no_condition_has_is_refused(table):
    with pytest.raises(ValueError, match=r"severity must be one of \[0, 1, 2, 3\], got 7"):
        table.estimate("ts", severity=7)


def test_at_least_one_labelled_condition_is_needed(calibrators, drifting):
    with pytest.raises(ValueError, match="at least one labelled test set"):
        evaluate_conditions(calibrators, [Condition.from_outputs(drifting["ood"])])


def test_the_same_seed_gives_the_same_intervals(calibrators, conditions, table):
    again = evaluate_conditions(calibrators, conditions, n_resamples=100)
    assert again.estimate("dac+ts") == table.estimate("dac+ts")


@pytest.mark.parametrize("name", ["uncalibrated", "oracle", "Oracle", "", " "])
def test_a_calibrator_cannot_take_the_name_of_a_row_that_is_added(calibrators, conditions, name):
    with pytest.raises(ValueError, match="A calibrator cannot be named"):
        evaluate_conditions({name: calibrators["ts"]}, conditions, n_resamples=0)


def test_conditions_of_the_same_name_and_severity_are_rejected(conditions):
    with pytest.raises(ValueError, match="several named 'noise, severity 1'"):
        evaluate_conditions({}, [*conditions, conditions[1]], n_resamples=0)


def test_tables_that_are_not_paired_cannot_be_joined(calibrators, conditions, drifting):
    def evaluated(name="ts", tests=conditions, **options):
        return evaluate_conditions({name: calibrators[name]}, tests, **{"n_resamples": 20, **options})

    table = evaluated()
    shorter = [Condition.from_outputs(one.outputs[:-1]) for one in conditions]
    shuffled = [Condition.from_outputs(one.outputs[::-1]) for one in conditions]
    bins = replace(METRICS["ece"], options={"n_bins": 5})
    for other, words in (
        (evaluated("spl", shorter), "differ in the samples of 'clean'"),
        (evaluated("spl", shuffled), "differ in the samples of 'clean'"),
        (evaluated("spl", seed=1), "differ in the seed: 0 and 1"),
        (evaluated("spl", level=0.5), "differ in the level: 0.95 and 0.5"),
        (evaluated("spl", n_resamples=30), "differ in the n_resamples of ece: 20 and 30"),
        (evaluated("spl", n_resamples=0), "differ in the n_resamples of ece: 20 and 0"),
        (evaluated("spl", metrics=[bins]), "differ in the metric ece"),
    ):
        with pytest.raises(ValueError, match=words):
            table.join(other)
    for metrics in (["ece"], ["ks"]):
        other = evaluate_conditions({"ts": calibrators["spl"]}, conditions, metrics=metrics, n_resamples=20)
        with pytest.raises(ValueError, match="differ in the .* of 'ts'.*other calibrators under other names"):
            table.join(other)
    more = evaluated("spl", metrics=["ece", "ks"], n_resamples={"ece": 20, "ks": 0})
    assert set(table.join(more).metrics) == {*table.metrics, "ks"}


def test_the_oracle_is_evaluated_on_no_out_of_domain_set_labelled_or_not(calibrators, conditions, drifting):
    foreign = drifting["ood"]
    outside = [
        Condition("unlabelled", foreign, out_of_domain=True),
        Condition("labelled", drifting["test-3"], out_of_domain=True),
    ]
    table = evaluate_conditions(
        {"ts": calibrators["ts"]}, [conditions[0], *outside], metrics=["ece", "auroc"], oracle=True, n_resamples=20
    )
    rows = table.ood_rows()
    assert rows[["method", "condition"]].values.tolist() == [
        ["uncalibrated", "unlabelled"], ["uncalibrated", "labelled"], ["ts", "unlabelled"], ["ts", "labelled"]
    ]  # fmt: skip
    assert table.ood_estimate("ts", "labelled").estimate == pytest.approx(rows["value"][3])


def test_resamples_of_a_metric_that_is_not_evaluated_are_rejected(calibrators, conditions):
    with pytest.raises(ValueError, match=r"n_resamples names \['eec'\], but the metrics are \['ece'\]"):
        evaluate_conditions(calibrators, conditions, metrics=["ece"], n_resamples={"eec": 50})
