from __future__ import annotations

from copy import copy

import numpy as np
import pytest

import densecal
from densecal import DAC, Outputs, TemperatureScaling, make_calibrator
from densecal.metrics import expected_calibration_error

KINDS = {"fog": 0.8, "rain": 1.0, "dusk": 1.2}
"""How much each kind of shift harms the classifier at the same distance from the training data."""


def make_domain(samples: int, shift: float, seed: int, harm: float = 1.0):
    """A classifier whose accuracy falls with the shift while its logits stay as large; layer 0 sees the shift."""
    rng = np.random.default_rng(seed)
    honest = rng.normal(0, 2.0, (samples, 5))
    labels = (honest + rng.gumbel(size=honest.shape)).argmax(axis=1)
    logits = 2.5 * (honest + rng.normal(0, 1.0 + 2.5 * shift, (samples, 5)) * shift * harm)
    distances = np.stack([0.5 + 0.4 * shift + rng.normal(0, 0.04, samples), rng.uniform(0.4, 0.6, samples)], axis=1)
    return logits.astype(np.float32), labels, distances.astype(np.float32)


def make_shifted():
    strengths = {"weak": 0.2, "medium": 0.5, "strong": 0.9}
    return {
        f"{kind}/{name}": make_domain(700, shift, 10 * row + column, harm)
        for row, (kind, harm) in enumerate(KINDS.items())
        for column, (name, shift) in enumerate(strengths.items())
    }


def fit(method: str):
    logits, labels, distances = make_domain(4000, 0.0, 99)
    return make_calibrator(method).fit(logits, labels, distances=distances, shifted=make_shifted())


@pytest.fixture(scope="module")
def dac():
    return fit("dac")


@pytest.fixture(scope="module")
def batches():
    return {shift: make_domain(2000, shift, 50 + number) for number, shift in enumerate((0.0, 0.3, 0.7))}


def accuracy_of(batch):
    logits, labels, _ = batch
    return float((logits.argmax(axis=1) == labels).mean())


def ece(calibrator, batch):
    logits, labels, distances = batch
    return expected_calibration_error(calibrator.predict_proba(logits, distances=distances), labels)


def test_the_accuracy_of_unlabelled_batches_is_known(dac, batches):
    for batch in batches.values():
        found = dac.estimate_accuracy(batch[0], distances=batch[2])
        assert abs(found.accuracy - accuracy_of(batch)) < 0.05
        assert found.low <= accuracy_of(batch) <= found.high
    assert found.plain_confidence > accuracy_of(batch) + 0.15  # temperature scaling does not notice the shift


def test_the_interval_grows_with_the_shift_and_with_fewer_samples(dac, batches):
    widths = {
        (shift, count): (found := dac.estimate_accuracy(logits[:count], distances=distances[:count])).high - found.low
        for shift, (logits, _, distances) in batches.items()
        for count in (50, 200, 2000)
    }
    assert widths[0.0, 2000] < widths[0.3, 2000] < widths[0.7, 2000]
    assert widths[0.3, 2000] < widths[0.3, 200] < widths[0.3, 50]


def test_drift_and_far_inputs_are_those_of_the_shifted_layer(dac, batches):
    clean, far = (dac.estimate_accuracy(b[0], distances=b[2]) for b in (batches[0.0], batches[0.7]))
    assert max(map(abs, clean.drift.values())) < 0.1
    assert far.drift["layer 0"] > 3 > abs(far.drift["layer 1"])
    assert clean.far_share < 0.05 < 0.9 < far.far_share


def test_batches_farther_away_than_all_shifted_data_are_said_to_be_extrapolated(dac, batches):
    near, far = (dac.estimate_accuracy(b[0], distances=b[2]) for b in (batches[0.3], batches[0.7]))
    logits, _, distances = batches[0.7]
    beyond = dac.estimate_accuracy(logits, distances=3 * distances)
    assert near.extrapolation < far.extrapolation < beyond.extrapolation
    assert beyond.is_extrapolated and not near.is_extrapolated
    assert "an extrapolation: the inputs are farther from the training data" in str(beyond)
    assert "extrapolation" not in str(near)
    with pytest.warns(densecal.CalibrationWarning, match="an extrapolation.*Nothing supports the confidences"):
        dac.adapted_to(logits, distances=3 * distances)


def test_batches_nearer_than_all_shifted_data_are_said_to_be_extrapolated(dac, batches):
    logits, _, distances = batches[0.7]
    collapsed = dac.estimate_accuracy(logits, distances=distances - [[0.4, 0.0]])
    assert collapsed.is_extrapolated and "or nearer" in str(collapsed)
    assert collapsed.low <= accuracy_of(batches[0.7]) < collapsed.accuracy - 0.1


@pytest.mark.filterwarnings("ignore:overflow")
def test_very_far_batches_whose_temperature_overflows_are_adapted_to(dac, batches):
    logits, _, distances = (np.asarray(one, np.float32) for one in batches[0.7])
    far = np.float32(1e4) * distances
    assert np.isinf(dac.temperatures(logits, distances=far)).any()
    assert np.isfinite(dac.adapted_to(logits, distances=far).predict_proba(logits, distances=far)).all()


def test_scores_per_class_need_a_large_batch_and_agree_with_the_accuracy(dac, batches):
    logits, labels, distances = batches[0.3]
    found = dac.estimate_accuracy(logits, distances=distances)
    assert np.trace(found.confusion) / len(logits) == pytest.approx(found.accuracy, abs=1e-3)
    true = [(logits.argmax(axis=1)[labels == c] == c).mean() for c in range(5)]
    assert np.abs(found.recall - true).max() < 0.08
    assert dac.estimate_accuracy(logits[:99], distances=distances[:99]).confusion is None


def test_the_estimate_ignores_which_classes_are_frequent(dac, batches):
    logits, labels, distances = batches[0.7]
    rows = np.flatnonzero(labels < 2)
    found = dac.estimate_accuracy(logits[rows], distances=distances[rows])
    assert abs(found.accuracy - accuracy_of((logits[rows], labels[rows], None))) < 0.05


@pytest.mark.parametrize("method", ["dac", "dac+ets", "dac+spl"])
def test_an_adapted_copy_is_calibrated_for_its_batch(batches, method, tmp_path):
    calibrator = fit(method)
    logits, _, distances = batches[0.7]
    before = calibrator.predict_proba(logits, distances=distances)
    adapted = calibrator.adapted_to(logits, distances=distances)
    np.testing.assert_array_equal(calibrator.predict_proba(logits, distances=distances), before)
    probabilities = adapted.predict_proba(logits, distances=distances)
    found = calibrator.estimate_accuracy(logits, distances=distances)
    assert probabilities.max(axis=1).mean() == pytest.approx(found.accuracy, abs=0.015)
    np.testing.assert_array_equal(probabilities.argmax(axis=1), logits.argmax(axis=1))
    one = adapted.predict_proba(logits[7:8], distances=distances[7:8])
    np.testing.assert_allclose(one, probabilities[7:8], rtol=1e-5)  # a row does not depend on other rows
    adapted.save(tmp_path / "adapted.densecal")
    loaded = densecal.load(tmp_path / "adapted.densecal")
    np.testing.assert_array_equal(loaded.predict_proba(logits, distances=distances), probabilities)
    assert loaded.estimate_accuracy(logits, distances=distances).accuracy == found.accuracy


def test_a_clean_batch_gets_what_temperature_scaling_gives(dac, batches):
    val_logits, val_labels, _ = make_domain(4000, 0.0, 99)
    scaling = TemperatureScaling(loss="nll").fit(val_logits, val_labels)
    logits, _, distances = batches[0.0]
    confidence = dac.adapted_to(logits, distances=distances).confidence(logits, distances=distances)
    assert np.quantile(np.abs(confidence - scaling.confidence(logits)), 0.95) < 0.02


def test_a_clean_batch_keeps_a_fit_that_is_better_than_temperature_scaling_on_clean_data(dac, batches):
    better = copy(dac)
    better.clean_cost_ = {**dac.clean_cost_, "nll": -0.001}
    logits, _, distances = batches[0.0]
    confidence = better.adapted_to(logits, distances=distances).confidence(logits, distances=distances)
    assert np.quantile(np.abs(confidence - dac.confidence(logits, distances=distances)), 0.95) < 0.02


def test_a_mixed_batch_is_calibrated_in_both_parts(dac, batches):
    parts = [tuple(array[:1000] for array in batches[shift]) for shift in (0.0, 0.7)]
    mixed = [np.concatenate(arrays) for arrays in zip(*parts, strict=True)]
    adapted = dac.adapted_to(mixed[0], distances=mixed[2])
    val_logits, val_labels, _ = make_domain(4000, 0.0, 99)
    scaling = TemperatureScaling(loss="nll").fit(val_logits, val_labels)
    assert sum(ece(adapted, part) for part in parts) < 0.5 * sum(ece(scaling, part) for part in parts)


def test_a_few_samples_change_little(dac, batches):
    logits, _, distances = batches[0.7]
    before = np.log(dac.temperatures(logits, distances=distances))
    for count, most in ((1, 0.1), (5, 0.3)):
        adapted = dac.adapted_to(logits[:count], distances=distances[:count])
        change = np.log(adapted.temperatures(logits, distances=distances)) - before
        assert np.abs(change).mean() < most


def test_adapting_again_forgets_the_earlier_batch(dac, batches):
    once, twice = (dac.adapted_to(batches[0.3][0], distances=batches[0.3][2]) for _ in range(2))
    twice = twice.adapted_to(batches[0.7][0], distances=batches[0.7][2])
    again = twice.adapted_to(batches[0.3][0], distances=batches[0.3][2])
    np.testing.assert_array_equal(again.adaptation_, once.adaptation_)


def test_unnamed_shifted_data_suffice(batches):
    logits, labels, distances = make_domain(4000, 0.0, 99)
    calibrator = DAC().fit(logits, labels, distances=distances, shifted=list(make_shifted().values()))
    found = calibrator.estimate_accuracy(batches[0.3][0], distances=batches[0.3][2])
    assert abs(found.accuracy - accuracy_of(batches[0.3])) < 0.05


def test_a_calibrator_that_cannot_estimate_says_why(batches):
    logits, labels, distances = make_domain(500, 0.0, 99)
    with pytest.raises(ValueError, match=r"fitted without shifted data.*pass fit\(\.\.\., shifted="):
        DAC().fit(logits, labels, distances=distances).estimate_accuracy(logits, distances=distances)
    with pytest.raises(ValueError, match=r"'ts' cannot estimate accuracies.*'dac\+ts'"):
        TemperatureScaling().fit(logits, labels).adapted_to(logits)
    rejected = DAC(max_clean_cost=(-1.0, -1.0))
    with pytest.warns(densecal.CalibrationWarning, match="max_clean_cost"):
        rejected.fit(logits, labels, distances=distances, shifted=make_shifted())
    with pytest.raises(ValueError, match="rejected, see max_clean_cost"):
        rejected.estimate_accuracy(logits, distances=distances)


def test_outputs_and_tensors_give_the_same_estimate(dac, batches):
    torch = pytest.importorskip("torch")
    logits, labels, distances = batches[0.3]
    plain = dac.estimate_accuracy(logits, distances=distances)
    assert dac.estimate_accuracy(torch.tensor(logits), distances=torch.tensor(distances)).accuracy == pytest.approx(
        plain.accuracy, abs=1e-5
    )
    measured = Outputs(logits, labels).with_distances(densecal.Distances(distances, ("layer 0", "layer 1"), None))
    assert dac.estimate_accuracy(measured).accuracy == plain.accuracy


def test_the_adapted_copy_does_not_depend_on_the_order_of_the_batch(batches):
    """With one layer, many inputs are as near as clean ones and share the lowest temperature."""
    near = {name: (logits, labels, distances[:, :1]) for name, (logits, labels, distances) in make_shifted().items()}
    logits, labels, distances = make_domain(4000, 0.0, 99)
    dac = DAC().fit(logits, labels, distances=distances[:, :1], shifted=near)
    halves = [make_domain(500, shift, 70 + number) for number, shift in enumerate((0.0, 0.7))]
    logits, distances = (np.concatenate([half[part] for half in halves]) for part in (0, 2))
    orders = [np.arange(1000), np.arange(1000)[::-1], np.random.default_rng(0).permutation(1000)]
    copies = [dac.adapted_to(logits[rows], distances=distances[rows, :1]) for rows in orders]
    found = [one.confidence(logits, distances=distances[:, :1]).mean() for one in copies]
    assert found == pytest.approx([found[0]] * 3, abs=1e-4)
    estimate = dac.estimate_accuracy(logits, distances=distances[:, :1])
    assert found[0] == pytest.approx(estimate.accuracy, abs=0.02)
