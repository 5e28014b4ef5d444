from __future__ import annotations

import numpy as np
import pytest

from reproduction.measuring.measurements import Measurements
from reproduction.methods import EVERY_METHOD, fit_method, label_of, make_method
from reproduction.protocol import Protocol

RESAMPLES = 20
FAST = ("uncalibrated", "oracle", "ts", "dac+ts", "published+ts", "ets", "dac+ets", "spl", "dac+spl")


@pytest.fixture(scope="module")
def protocol(results) -> Protocol:
    return Protocol(results, resamples=RESAMPLES)


def test_every_method_has_a_label_and_every_fitted_one_can_be_made():
    assert len(EVERY_METHOD) == 3 + 3 * 8
    for method in EVERY_METHOD:
        assert label_of(method)
        if method not in ("uncalibrated", "oracle"):
            make_method(method)


def test_the_published_codes_variant_squares_first_neighbour_distances(measured):
    from densecal import DAC

    chain = fit_method("published+ts", measured)
    first = measured.distances("val", 1)
    wanted = DAC().fit(measured.sets["val"].logits, measured.labels("val"), distances=first**2)
    assert chain.stages[0].weights_ == pytest.approx(wanted.weights_, rel=1e-5)


def test_dac_lowers_the_ece_where_distance_tells_about_mistakes(protocol):
    change = protocol.result("c10-resnet18", "dac+ts").difference(protocol.result("c10-resnet18", "ts"))
    assert change.estimate < 0
    assert change.excludes_zero


def test_accuracy_is_the_same_before_and_after_an_accuracy_preserving_method(protocol):
    plain, after = (protocol.result("c10-resnet18", method) for method in ("uncalibrated", "dac+ets"))
    assert (plain.values["accuracy"] == after.values["accuracy"]).all()


def test_the_tidy_table_has_a_row_for_every_method_condition_and_measure(protocol):
    table = protocol.table(["c10-resnet18"], FAST)
    assert list(table.columns) == [
        "classifier", "method", "condition", "severity", "measure", "value", "low", "high",
    ]  # fmt: skip
    assert len(table) == len(FAST) * 11 * 8
    assert set(table["method"]) == set(FAST)


def test_a_result_that_was_judged_before_is_read_back(results, tmp_path, monkeypatch):
    protocol = Protocol(results, tmp_path, RESAMPLES)
    first = protocol.result("c10-resnet18", "ts", measures=["ece"])
    monkeypatch.setattr("reproduction.protocol.judge", None)
    again = Protocol(results, tmp_path, RESAMPLES).result("c10-resnet18", "ts", measures=["ece"])
    assert again.estimate().estimate == pytest.approx(first.estimate().estimate)


def test_other_settings_are_other_results(protocol):
    few = {"measures": ("ece",), "resamples": 0, "out_of_domain": False}
    half = protocol.result("c10-resnet18", "ts", fraction=0.5, **few)
    other = protocol.result("c10-resnet18", "ts", fraction=0.5, draw=1, **few)
    near = protocol.result("c10-resnet18", "dac+ts", k=1, **few)
    logits = protocol.result("c10-resnet18", "dac+ts", layers=["logits"], **few)
    values = {result.estimate().estimate for result in (half, other, near, logits)}
    assert len(values) == 4
    assert logits.metadata["layers"] == ["logits"]


def test_dac_without_a_layer_is_temperature_scaling(protocol):
    few = {"measures": ("ece",), "resamples": 0, "out_of_domain": False}
    none = protocol.result("c10-resnet18", "dac", layers=(), **few)
    plain = protocol.result("c10-resnet18", "ts", **few)
    assert none.values["ece"] == pytest.approx(plain.values["ece"], abs=1e-4)


def test_a_classifier_without_validation_set_is_judged_on_the_rest_of_its_test_set(measured, tmp_path):
    sets = {name: each for name, each in measured.sets.items() if name != "val"}
    big = {name: each.rows(np.tile(np.arange(300), 20)) for name, each in sets.items()}
    Measurements("c10-resnet20", measured.layers, measured.ks, big).save(tmp_path / "measurements" / "c10-resnet20")
    protocol = Protocol(tmp_path, resamples=0)
    assert len(protocol.measurements("c10-resnet20").sets["val"].logits) == 5000
    assert protocol.result("c10-resnet20", "ts", measures=["ece"]).estimate().estimate > 0


def test_a_classifier_that_was_not_measured_says_what_it_needs(protocol):
    with pytest.raises(FileNotFoundError, match=r"img-vit-b has not been measured.*imagenet.*timm"):
        protocol.result("img-vit-b", "ts")


def test_a_result_by_more_measures_serves_one_that_asks_for_fewer(results, tmp_path, monkeypatch):
    protocol = Protocol(results, tmp_path, RESAMPLES)
    whole = protocol.result("c10-resnet18", "ts", measures=["ece", "brier"])
    monkeypatch.setattr("reproduction.protocol.judge", None)
    assert (
        protocol.result("c10-resnet18", "ts", measures=["brier"], out_of_domain=False).values.keys()
        == whole.values.keys()
    )
    with pytest.raises(TypeError):
        protocol.result("c10-resnet18", "ts", measures=["nll"])
