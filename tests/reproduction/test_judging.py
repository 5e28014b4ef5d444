from __future__ import annotations

import numpy as np
import pytest

from densecal import Outputs
from densecal.calibrators.temperature import TemperatureScaling
from densecal.evaluation import Condition
from densecal.metrics import METRICS, classwise_calibration_error, ood_scores, paired_macro_bootstrap
from densecal.metrics.resampling import Resamples, domain_replicates
from reproduction.fast_bootstrap import kde_replicates, ood_replicates
from reproduction.judging import MEASURES, OOD_MEASURES, answer, judge
from reproduction.results import MethodResult


@pytest.fixture(scope="module")
def fitted(measured):
    return TemperatureScaling().fit(measured.sets["val"].logits, measured.labels("val"))


@pytest.fixture(scope="module")
def judged(measured, fitted):
    conditions, outside = measured.conditions(50), measured.out_of_domain(50)
    return {
        name: judge(name, calibrator, conditions, out_of_domain=outside, resamples=40)
        for name, calibrator in (("ts", fitted), ("uncalibrated", None), ("oracle", None))
    }


def test_every_measure_is_the_metrics_own(measured, fitted, judged):
    condition = measured.conditions(50)[7]
    probabilities, labels = fitted.predict_proba(condition.outputs.logits), condition.outputs.labels
    for measure in MEASURES:
        value = judged["ts"].values[measure][7]
        if measure == "classwise_ece_paper":
            assert value == pytest.approx(
                classwise_calibration_error(probabilities, labels, n_bins=14, reduction="sum")
            )
        else:
            assert value == pytest.approx(METRICS[measure](probabilities, labels), rel=1e-6)


def test_all_weighs_the_six_severities_alike_and_mean_every_condition(judged):
    result = judged["ts"]
    levels = [result.values["ece"][result.severities == level].mean() for level in range(6)]
    assert result.estimate("ece", "all").estimate == pytest.approx(np.mean(levels))
    assert result.estimate("ece", "mean").estimate == pytest.approx(result.values["ece"].mean())
    assert result.estimate("ece", 5).estimate == pytest.approx(levels[5])


def test_a_paired_difference_is_the_one_of_the_metrics_package(measured, fitted, judged):
    conditions = measured.conditions(50)
    pairs = {}
    for name, calibrator in (("ts", fitted), ("uncalibrated", None)):
        answers = [answer(name, calibrator, condition)[0] for condition in conditions]
        pairs[name] = [(p, c.outputs.labels) for p, c in zip(answers, conditions, strict=True)]
    groups = [condition.severity for condition in conditions]
    wanted = paired_macro_bootstrap("ece", pairs["ts"], pairs["uncalibrated"], groups=groups, n_resamples=40)
    found = judged["ts"].difference(judged["uncalibrated"])
    assert found.estimate == pytest.approx(wanted.estimate)
    assert found.low == pytest.approx(min(wanted.low, wanted.estimate), abs=1e-6)
    assert found.high == pytest.approx(max(wanted.high, wanted.estimate), abs=1e-6)


def test_an_interval_holds_its_value(judged):
    rows = judged["ts"].rows()
    assert (rows["low"] <= rows["value"] + 1e-12).all()
    assert (rows["value"] <= rows["high"] + 1e-12).all()


def test_an_interval_ends_where_the_measures_range_does_but_a_differences_may_be_negative():
    rng = np.random.default_rng(0)
    labels = (rng.random(200) > 0.95).astype(int)
    # Confidences that are right up to chance: resampling adds more to the ECE than there is.
    logits = np.tile(np.log([0.95, 0.05]), (200, 1)) + rng.normal(0, 1e-3, (200, 2))
    conditions = [Condition("clean", Outputs(logits, labels))]
    result = judge("uncalibrated", None, conditions, out_of_domain=conditions, resamples=100)
    mirrored = 2 * result.values["ece"][0] - np.quantile(result.replicates["ece"], 0.975)
    assert mirrored < 0
    assert result.estimate("ece").low == 0
    rows = result.rows().set_index("measure")
    assert (rows["low"] >= 0).all()
    assert (rows.loc[["accuracy", "ece"], "high"] <= 1).all()
    outside = [result.ood_estimate("clean", measure) for measure in OOD_MEASURES]
    assert all(0 <= found.low <= found.high <= 1 for found in outside)
    worse = judge("worse", None, [Condition("clean", Outputs(3 * logits, labels))], resamples=100)
    assert result.difference(worse).low < 0


def test_the_oracle_is_better_than_one_temperature_for_all(judged):
    assert judged["oracle"].estimate("brier").estimate < judged["ts"].estimate("brier").estimate


def test_out_of_domain_measures_compare_the_clean_confidence_with_the_foreign_one(measured, fitted, judged):
    inside = fitted.confidence(measured.sets["clean"].logits)
    outside = fitted.confidence(measured.sets["ood-fashion"].logits)
    wanted = ood_scores(inside, outside).as_dict()
    for measure in OOD_MEASURES:
        assert judged["ts"].ood_estimate("fashion", measure).estimate == pytest.approx(wanted[measure], rel=1e-6)
    assert judged["oracle"].ood == {}


def test_a_result_survives_the_disk(judged, tmp_path):
    path = tmp_path / "ts.npz"
    judged["ts"].save(path)
    back = MethodResult.load(path)
    assert back.conditions == judged["ts"].conditions
    assert back.estimate("nll", 5).estimate == pytest.approx(judged["ts"].estimate("nll", 5).estimate)
    assert back.estimate("ece").low == pytest.approx(judged["ts"].estimate("ece").low, abs=1e-6)
    assert back.ood_estimate("fashion", "auroc") == judged["ts"].ood_estimate("fashion", "auroc")


def test_without_resamples_there_are_values_and_no_intervals(measured):
    result = judge("uncalibrated", None, measured.conditions(50), measures=["ece"], resamples=0)
    assert np.isnan(result.estimate().low)
    assert result.estimate().estimate > 0


def test_an_unmeasured_severity_or_measure_is_named(judged):
    with pytest.raises(ValueError, match="no condition of severity 7"):
        judged["ts"].estimate("ece", 7)
    with pytest.raises(ValueError, match="not judged by 'auroc'"):
        judged["ts"].estimate("auroc")


def test_results_on_other_conditions_are_not_compared(measured, judged):
    fewer = judge("uncalibrated", None, measured.conditions(50)[:3], measures=["ece"], resamples=10)
    with pytest.raises(ValueError, match="different conditions"):
        judged["ts"].difference(fewer)


def test_all_resamples_of_the_kde_at_once_are_close_to_one_at_a_time():
    rng = np.random.default_rng(0)
    confidence = rng.beta(6, 2, 2000)
    correct = rng.random(2000) < confidence**1.5
    draws = Resamples(2000, 12, 3)
    one_by_one = draws.replicates("ece_kde", confidence, correct)
    # The bandwidth is the whole sample's, not each resample's own.
    assert kde_replicates(draws, confidence, correct) == pytest.approx(one_by_one, abs=4e-4)


def test_out_of_domain_replicates_are_those_of_the_metrics_package():
    rng = np.random.default_rng(0)
    inside, outside = rng.beta(5, 2, 300), rng.beta(3, 3, 200)
    found = ood_replicates(inside, outside, 5, 7)
    for measure in OOD_MEASURES:
        assert found[measure] == pytest.approx(domain_replicates(measure, inside, outside, 5, 7))
