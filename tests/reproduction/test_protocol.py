from __future__ import annotations

import numpy as np
import pytest

from densecal import DAC
from densecal.metrics import METRICS, OOD_METRICS, classwise_calibration_error, ood_scores
from reproduction.measuring.measurements import Measurements
from reproduction.methods import EVERY_METHOD, fit_method, label_of, make_method
from reproduction.protocol import ALL_METRICS, Protocol

N_RESAMPLES = 20
FAST = ("uncalibrated", "oracle", "ts", "dac+ts", "published+ts", "ets", "dac+ets", "spl", "dac+spl")
ROW = "c10-resnet18"


@pytest.fixture(scope="module")
def protocol(results) -> Protocol:
    return Protocol(results, (*ALL_METRICS, *OOD_METRICS), N_RESAMPLES)


@pytest.fixture(scope="module")
def table(protocol):
    return protocol.table(ROW, FAST)


def test_every_method_has_a_label_and_every_fitted_one_can_be_made():
    assert len(EVERY_METHOD) == 3 + 3 * 8
    for method in EVERY_METHOD:
        assert label_of(method)
        if method not in ("uncalibrated", "oracle"):
            make_method(method)


def test_labels_are_those_of_the_tables():
    methods = ("dac+ets", "published+ets", "ts", "uncalibrated")
    assert [label_of(method) for method in methods] == ["ETS + DAC", "ETS + DAC (published code)", "TS", "Uncalibrated"]


def test_the_published_codes_variant_squares_first_neighbour_distances(measured):
    chain = fit_method("published+ts", measured)
    first = measured.distances("val", 1)
    wanted = DAC().fit(measured.sets["val"].logits, measured.labels("val"), distances=first**2)
    assert chain.stages[0].weights_ == pytest.approx(wanted.weights_, rel=1e-5)


def test_dac_lowers_the_ece_where_distance_tells_about_mistakes(table):
    change = table.difference("dac+ts", "ts")
    assert change.estimate < 0
    assert change.excludes_zero


def test_accuracy_is_the_same_before_and_after_an_accuracy_preserving_method(table):
    assert (table.values["uncalibrated", "accuracy"] == table.values["dac+ets", "accuracy"]).all()


def test_every_metric_is_the_librarys_and_the_papers_classwise_ece_has_14_bins(protocol, table):
    condition = table.conditions[7]
    probabilities = fit_method("ts", protocol.measurements(ROW)).predict_proba(condition.outputs.logits)
    labels = condition.outputs.labels
    classwise = classwise_calibration_error(probabilities, labels, n_bins=14, reduction="sum")
    assert table.values["ts", "classwise_ece_paper"][7] == pytest.approx(classwise)
    for metric in ("ece", "ece_mass", "ece_kde", "accuracy", "brier", "nll", "classwise_ece"):
        assert table.values["ts", metric][7] == pytest.approx(METRICS[metric](probabilities, labels), rel=1e-6)


def test_out_of_domain_metrics_compare_the_clean_confidence_with_the_foreign_one(protocol, measured, table):
    fitted = fit_method("ts", protocol.measurements(ROW))
    stored = protocol.measurements(ROW).sets
    inside, outside = (fitted.confidence(stored[name].logits) for name in ("clean", "ood-fashion"))
    wanted = ood_scores(inside, outside).as_dict()
    for metric in OOD_METRICS:
        assert table.ood_estimate("ts", "fashion", metric).estimate == pytest.approx(wanted[metric], rel=1e-6)


def test_a_method_is_evaluated_once(results, monkeypatch):
    protocol = Protocol(results, n_resamples=0)
    first = protocol.table(ROW, ["ts"])
    monkeypatch.setattr("reproduction.protocol.evaluate_conditions", None)
    assert protocol.table(ROW, ["ts"]) is first
    with pytest.raises(TypeError):
        protocol.table(ROW, ["ets"])


def test_other_settings_are_other_results(results):
    protocol = Protocol(results, n_resamples=0)
    half = protocol.table(ROW, ["ts"], fraction=0.5).estimate("ts")
    other = protocol.table(ROW, ["ts"], fraction=0.5, draw=1).estimate("ts")
    near = protocol.table(ROW, ["dac+ts"], k=1).estimate("dac+ts")
    logits = protocol.table(ROW, ["dac+ts"], layers=["logits"]).estimate("dac+ts")
    assert len({found.estimate for found in (half, other, near, logits)}) == 4


def test_dac_without_a_layer_is_temperature_scaling(results):
    protocol = Protocol(results, n_resamples=0)
    none = protocol.table(ROW, ["dac"], layers=()).values["dac", "ece"]
    assert none == pytest.approx(protocol.table(ROW, ["ts"]).values["ts", "ece"], abs=1e-4)


def test_a_classifier_without_validation_set_is_evaluated_on_the_rest_of_its_test_set(measured, tmp_path):
    sets = {name: each for name, each in measured.sets.items() if name != "val"}
    big = {name: each.rows(np.tile(np.arange(300), 20)) for name, each in sets.items()}
    Measurements("c10-resnet20", measured.layers, measured.ks, big).save(tmp_path / "measurements" / "c10-resnet20")
    protocol = Protocol(tmp_path, n_resamples=0)
    assert protocol.rows() == ()
    assert protocol.rows(in_paper=False) == ("c10-resnet20",)
    assert len(protocol.measurements("c10-resnet20").sets["val"]) == 5000
    assert protocol.table("c10-resnet20", ["ts"]).estimate("ts").estimate > 0


def test_a_classifier_that_was_not_measured_says_what_it_needs(protocol):
    with pytest.raises(FileNotFoundError, match=r"img-vit-b has not been measured.*imagenet.*timm"):
        protocol.table("img-vit-b", ["ts"])


def test_a_long_run_shows_how_far_it_is(results, monkeypatch):
    seen = []
    track = lambda items, description: seen.append((len(items), description)) or items  # noqa: E731
    monkeypatch.setattr("reproduction.protocol.track", track)
    Protocol(results, n_resamples=0).table(ROW, ("uncalibrated", "ts", "ets"))
    assert seen == [(2, f"{ROW}: fitting")]
