from __future__ import annotations

import numpy as np
import pytest

from densecal import DAC, Chain, FeatureBank, Outputs, SplineCalibration, TemperatureScaling
from densecal.evaluation import Condition, evaluate_conditions, read_conditions
from densecal.metrics import Metric
from densecal.outputs.shards import shard_name
from densecal.report import write_report

METRICS = ("ece", "accuracy", "mean_confidence", "brier", "nll", "classwise_ece", "ece_kde", "ks", "ece_mass")


@pytest.fixture(scope="module")
def calibrators(drifting):
    val, bank = drifting["val"], FeatureBank(drifting["train"].features, k=10)
    made = {"ts": TemperatureScaling(), "spl": SplineCalibration(), "dac+ts": Chain(DAC(bank), TemperatureScaling())}
    return {name: one.fit(val.logits, val.labels, features=val.features) for name, one in made.items()}


@pytest.fixture(scope="module")
def test(drifting):
    return drifting["test-1"]


@pytest.fixture(scope="module")
def shards(test, tmp_path_factory):
    folder = tmp_path_factory.mktemp("shards")
    for place, rows in enumerate(np.array_split(np.arange(len(test)), 3)):
        test[rows].save(folder / shard_name("fog-1", place, 3))
    return folder


def test_a_condition_in_shards_has_the_values_of_the_same_in_memory(calibrators, test, shards):
    whole = evaluate_conditions(calibrators, [Condition("fog", test, 1)], metrics=METRICS, n_resamples=0)
    parts = [Condition("fog", Outputs.open(shards), 1)]
    table = evaluate_conditions(calibrators, parts, metrics=METRICS, n_resamples=0, sample_size=100)
    for key, expected in whole.values.items():
        tolerance = 2e-3 if key[1] in ("ks", "ece_mass") else 1e-9
        assert table.values[key] == pytest.approx(expected, abs=tolerance), key
    assert table.rows()["n_samples"].unique().tolist() == [len(test)]
    assert len(table.predictions["ts", "fog, severity 1"].confidence) == 100
    assert len(table.distances["dac+ts", "fog, severity 1"]) == 100


def test_a_condition_in_shards_that_is_sampled_is_never_in_memory_as_a_whole(calibrators, shards, monkeypatch):
    opened = Outputs.open(shards)
    monkeypatch.setattr(type(opened), "load", lambda shards: pytest.fail("all shards were read into memory"))
    evaluate_conditions(calibrators, [Condition("fog", opened)], n_resamples=0, sample_size=100)


def test_a_sample_as_large_as_the_condition_gives_the_same_table_as_in_memory(calibrators, test, shards):
    one = evaluate_conditions(calibrators, [Condition("fog", test, 1)], n_resamples=50)
    other = evaluate_conditions(calibrators, [Condition("fog", Outputs.open(shards), 1)], n_resamples=50)
    assert one.rows().equals(other.rows())


def test_intervals_from_a_sample_have_the_width_of_those_of_all_samples():
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(20_000, 5)).astype(np.float32) * 3
    labels = np.where(rng.random(20_000) < 0.7, logits.argmax(1), rng.integers(5, size=20_000))
    condition, calibrator = Condition("clean", Outputs(logits, labels)), TemperatureScaling().fit(logits, labels)
    whole, sampled = (evaluate_conditions({"ts": calibrator}, [condition], sample_size=size) for size in (20_000, 4000))
    for metric in ("ece", "accuracy", "brier", "nll"):
        expected, found = (one.difference("ts", "uncalibrated", metric) for one in (whole, sampled))
        assert found.estimate == pytest.approx(expected.estimate, abs=1e-9)
        if metric != "accuracy":
            assert found.high - found.low == pytest.approx(expected.high - expected.low, rel=0.25)


def test_own_metrics_and_the_oracle_are_those_of_the_sample(calibrators, test):
    own = Metric("right", "Right", lambda confidence, correct: float(np.mean(correct)), "fraction right")
    table = evaluate_conditions(
        {"ts": calibrators["ts"]}, [Condition("clean", test)], metrics=["ece", own], oracle=True, sample_size=200
    )
    assert table.values["ts", "right"][0] == table.predictions["ts", "clean"].correct.mean()
    assert ("oracle", "clean") not in table.states


def test_shards_in_a_folder_are_one_condition_beside_other_files(test, shards, tmp_path):
    for path in shards.iterdir():
        (tmp_path / path.name).symlink_to(path)
    Outputs(test.logits, test.labels).save(tmp_path / "clean.safetensors")
    found = {str(one): one.n_samples for one in read_conditions([tmp_path])}
    assert set(found.values()) == {len(test)}
    assert len(found) == 2
    (named,) = read_conditions([f"mist={shards}"])
    assert named.name == "mist"


def test_the_report_of_a_sample_shows_the_figures_of_all_samples(calibrators, test, shards, tmp_path):
    conditions = [Condition("clean", Outputs.open(shards))]
    table = evaluate_conditions(calibrators, conditions, sample_size=200)
    write_report(tmp_path / "report.html", calibrators, conditions, table=table)
    page = (tmp_path / "report.html").read_text()
    assert f"{len(test):,} samples" in page
    accuracy = np.mean(test.logits.argmax(1) == test.labels)
    assert f"accuracy {100 * accuracy:.0f}" in page
    assert "of larger sets, from 200 random samples" in page


def test_zero_threads_in_the_environment_are_the_default(drifting, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "0")
    table = evaluate_conditions({}, [Condition("clean", drifting["test-0"])], sample_size=100, n_resamples=0)
    assert table.conditions[0].n_samples == 300
