from __future__ import annotations

import pytest

from densecal import DAC, FeatureBank, TemperatureScaling, make_calibrator
from densecal.demo import open_demo
from densecal.evaluation import Condition, evaluate_conditions
from densecal.report import render_report
from densecal.report.estimates import MOST_SETS, estimate_sets, summarise


@pytest.fixture(scope="module")
def demo():
    return open_demo()


@pytest.fixture(scope="module")
def calibrators(demo):
    bank = FeatureBank(demo.train.features)
    return {
        "ts": TemperatureScaling().fit(demo.validation),
        "dac-shift": DAC(bank).fit(demo.validation, shifted=demo.perturbed),
    }


@pytest.fixture(scope="module")
def table(demo, calibrators):
    return evaluate_conditions(calibrators, demo.conditions, n_resamples=0)


def test_every_test_set_has_a_claim_an_estimate_and_the_truth(demo, table, calibrators):
    sets = estimate_sets(table, calibrators)
    assert [one.name for one in sets] == ["clean data", *(f"severity {number}" for number in range(1, 6))]
    for one in sets:
        assert one.estimate.low <= one.accuracy <= one.estimate.high
    assert sets[-1].estimate.plain_confidence > sets[-1].accuracy + 0.1
    direct = calibrators["dac-shift"].estimate_accuracy(demo.conditions[-2].outputs)
    assert sets[-1].estimate.accuracy == pytest.approx(direct.accuracy, abs=1e-6)
    assert "6 of 6" in summarise(sets)


def test_the_report_leads_with_the_estimates_if_a_calibrator_can_estimate(table, calibrators):
    page = render_report(table, calibrators, title="Report")
    assert page.index('id="estimates"') < page.index('id="verdict"')
    assert 'class="chart estimates"' in page
    assert "severity 5 78" in page.replace("\u202f", " ")  # the description for screen readers
    only_scaling = {"ts": calibrators["ts"]}
    without = render_report(table, only_scaling, title="Report")
    assert 'id="estimates"' not in without


def test_one_test_set_is_no_worst_case(demo, calibrators):
    table = evaluate_conditions(calibrators, demo.conditions[:1], n_resamples=0)
    text = summarise(estimate_sets(table, calibrators))
    assert "worst case" not in text and ". On clean data, temperature scaling claims" in text


def test_sets_without_a_severity_keep_their_names(demo, calibrators):
    halves = [
        Condition(name, demo.conditions[0].outputs[rows])
        for name, rows in (("home", slice(1000)), ("away", slice(1000, None)))
    ]
    natural = Condition("photographs", demo.conditions[3].outputs, natural=True)
    table = evaluate_conditions(calibrators, [*halves, natural], n_resamples=0)
    assert [one.name for one in estimate_sets(table, calibrators)] == ["home", "away", "photographs (natural shift)"]


def test_many_test_sets_are_pooled_by_severity(demo, calibrators):
    clean = demo.conditions[0].outputs
    conditions = [
        Condition.from_outputs(part, name=f"part {number}", severity=number % 3)
        for number in range(MOST_SETS + 1)
        for part in [type(clean)(clean.logits[number::30], clean.labels[number::30], _features(clean, number))]
    ]
    table = evaluate_conditions({"dac-shift": calibrators["dac-shift"]}, conditions, n_resamples=0)
    sets = estimate_sets(table, calibrators)
    assert [one.name for one in sets] == ["the sets without a severity", "severity 1", "severity 2"]
    assert sum(one.estimate.n_samples for one in sets) == sum(len(one.outputs) for one in conditions)
    total = sum((one.outputs.logits.argmax(axis=1) == one.outputs.labels).sum() for one in conditions)
    assert sum(one.accuracy * one.estimate.n_samples for one in sets) == pytest.approx(total)
    assert "of 3 groups of test sets." in summarise(sets)
    page = render_report(table, {"dac-shift": calibrators["dac-shift"]}, title="Report")
    assert "Its accuracy on each group of test sets:" in page and "accuracy on each test set" not in page.lower()


def _features(outputs, start):
    return {layer: values[start::30] for layer, values in outputs.features.items()}


def test_the_truth_is_the_classifiers_accuracy_also_where_a_method_changes_predictions(demo, table, calibrators):
    changing = make_calibrator("vs").fit(demo.validation.logits, (demo.validation.labels + 1) % 10)
    methods = {"vs": changing, "dac-shift": calibrators["dac-shift"]}
    without = evaluate_conditions(methods, demo.conditions, uncalibrated=False, n_resamples=0)
    assert without.values["vs", "accuracy"][0] < 0.5
    accuracies = [one.accuracy for one in estimate_sets(without, methods)]
    assert accuracies == pytest.approx([one.accuracy for one in estimate_sets(table, calibrators)])
