from __future__ import annotations

import warnings

import numpy as np
import pytest

import densecal
from densecal import DAC, FeatureBank, Outputs, TemperatureScaling
from densecal.calibrators.dac.excess import Excess
from densecal.calibrators.dac.guard import CleanCost, accepts_cost
from densecal.calibrators.validation_warnings import accuracy_at_chance
from densecal.metrics import expected_calibration_error


def make_domain(samples: int, shift: float, seed: int):
    """A classifier whose accuracy falls with the shift while its logits stay as large; layer 0 sees the shift."""
    rng = np.random.default_rng(seed)
    honest = rng.normal(0, 2.0, (samples, 5))
    noise = rng.normal(0, 1.0 + 2.5 * shift, (samples, 5))
    labels = (honest + rng.gumbel(size=honest.shape)).argmax(axis=1)
    logits = 2.5 * (honest + noise * shift)
    distances = np.stack([0.5 + 0.4 * shift + rng.normal(0, 0.04, samples), rng.uniform(0.4, 0.6, samples)], axis=1)
    return logits, labels, distances


@pytest.fixture
def domains():
    return {shift: make_domain(4000, shift, seed) for seed, shift in enumerate((0.0, 0.3, 0.6, 1.0))}


@pytest.fixture
def fitted(domains):
    logits, labels, distances = make_domain(4000, 0.0, 10)
    moved = [make_domain(4000, shift, 11 + number) for number, shift in enumerate((0.2, 0.8))]
    return DAC().fit(logits, labels, distances=distances, shifted=moved)


def ece(calibrator, domain):
    logits, labels, distances = domain
    return expected_calibration_error(calibrator.predict_proba(logits, distances=distances), labels)


def test_the_shift_fit_stays_honest_where_the_clean_fit_does_not(domains, fitted):
    logits, labels, _ = make_domain(4000, 0.0, 10)
    scaling = TemperatureScaling().fit(logits, labels)
    moved = [domains[shift] for shift in (0.3, 0.6, 1.0)]
    assert np.mean([ece(fitted, one) for one in moved]) < 0.6 * np.mean([ece(scaling, one) for one in moved])
    assert ece(fitted, domains[0.0]) < ece(scaling, domains[0.0]) + 0.01


def test_the_temperature_grows_with_every_distance_and_never_flattens(domains, fitted):
    logits, _, distances = domains[0.6]
    before = fitted.temperatures(distances=distances, logits=logits)
    for layer in range(2):
        for step in (0.1, 1.0, 10.0):
            farther = distances.copy()
            farther[:, layer] += step
            after = fitted.temperatures(distances=farther, logits=logits)
            assert (after >= before).all()
    far = [fitted.temperatures(distances=distances + step, logits=logits).mean() for step in (1.0, 1.2, 1.4)]
    assert far[0] < far[1] < far[2]


def test_a_clean_input_that_is_as_far_as_its_confidence_explains_keeps_the_level(fitted):
    logits, _, distances = make_domain(4000, 0.0, 10)
    near = np.zeros_like(distances)
    np.testing.assert_allclose(fitted.temperatures(distances=near, logits=logits), fitted.bias_)


def test_the_layer_that_sees_the_shift_gets_the_weight(fitted):
    assert fitted.layer_importance_["layer 0"] > 0.9
    assert fitted.shift_fitted


def test_predicted_classes_stay_to_the_last_sample(domains, fitted):
    for logits, _, distances in domains.values():
        probabilities = fitted.predict_proba(logits, distances=distances)
        np.testing.assert_array_equal(probabilities.argmax(axis=1), logits.argmax(axis=1))


def test_the_papers_fit_is_untouched_without_shifted_data(domains, fitted):
    logits, labels, distances = domains[0.0]
    with pytest.warns(densecal.CalibrationWarning, match="shifted="):
        plain = DAC().fit(logits, labels, distances=distances)
    assert not plain.shift_fitted
    np.testing.assert_allclose(plain.temperatures(distances=distances), plain.bias_, rtol=0.01)


def test_a_refit_without_shifted_data_forgets_the_shift_fit(domains, fitted):
    logits, labels, distances = domains[0.0]
    with pytest.warns(densecal.CalibrationWarning):
        fitted.fit(logits, labels, distances=distances)
    assert not fitted.shift_fitted


def test_outputs_with_features_serve_as_shifted_data_and_a_chain_hands_them_to_dac():
    rng = np.random.default_rng(0)
    logits, labels, _ = make_domain(500, 0.0, 0)
    bank = FeatureBank({"pool": rng.normal(size=(100, 4))}, k=3)
    val = Outputs(logits, labels, {"pool": rng.normal(size=(500, 4))})
    moved_logits, moved_labels, _ = make_domain(500, 0.8, 1)
    moved = Outputs(moved_logits, moved_labels, {"pool": rng.normal(size=(500, 4)) ** 3})
    chain = densecal.make_calibrator("dac+ets", bank=bank)
    chain.fit(val.logits, val.labels, features=val.features, shifted=[moved, moved])
    assert chain.stages[0].shift_fitted
    np.testing.assert_allclose(chain.predict_proba(val.logits, features=val.features).sum(axis=1), 1)


def test_a_saved_shift_fit_gives_the_same_temperatures(fitted, domains, tmp_path):
    logits, _, distances = domains[0.6]
    fitted.save(tmp_path / "dac.densecal")
    loaded = densecal.load(tmp_path / "dac.densecal")
    np.testing.assert_array_equal(
        loaded.temperatures(distances=distances, logits=logits), fitted.temperatures(distances=distances, logits=logits)
    )


def test_torch_tensors_give_the_same(fitted, domains):
    torch = pytest.importorskip("torch")
    logits, _, distances = domains[0.6]
    probabilities = fitted.predict_proba(torch.from_numpy(logits), distances=torch.from_numpy(distances))
    np.testing.assert_allclose(probabilities.numpy(), fitted.predict_proba(logits, distances=distances), atol=1e-6)


def test_a_served_model_computes_the_same_temperature(fitted, domains):
    torch = pytest.importorskip("torch")
    from densecal.torch.head.stages import Temperature, reduced_state

    logits, _, distances = (array for array in domains[0.6])
    module = Temperature(reduced_state(fitted, {}))
    used = [number for number, weight in enumerate(fitted.weights_) if weight > 0]
    served = module(torch.tensor(logits, dtype=torch.float32), torch.tensor(distances[:, used], dtype=torch.float32))
    np.testing.assert_allclose(served.numpy(), fitted.temperatures(distances=distances, logits=logits), rtol=1e-3)


def test_unused_layers_can_be_dropped(fitted, domains):
    logits, _, distances = domains[0.6]
    fitted.weights_[1] = 0.0
    reduced = fitted.reduced_to(["layer 0"])
    np.testing.assert_allclose(
        reduced.temperatures(distances=distances[:, :1], logits=logits),
        fitted.temperatures(distances=distances, logits=logits),
    )
    estimates = [
        reduced.estimate_accuracy(logits, distances=distances[:, :1]),
        fitted.estimate_accuracy(logits, distances=distances),
    ]
    assert estimates[0].accuracy == pytest.approx(estimates[1].accuracy)
    assert list(estimates[0].drift) == ["layer 0"]


def test_the_expected_distance_follows_the_confidence():
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 3, (3000, 4))
    top = np.sort(logits, axis=1)
    margin = top[:, -1] - top[:, -2]
    distances = (1.0 - 0.05 * margin + rng.normal(0, 0.01, 3000))[:, None]
    excess = Excess.learn(logits, distances)
    unsure, sure = margin < 0.5, margin > 4
    # Both lie where inputs of their confidence lie, although the unsure ones lie farther out.
    assert distances[unsure].mean() > distances[sure].mean() + 0.15
    assert excess(logits, distances)[unsure].mean() == pytest.approx(excess(logits, distances)[sure].mean(), abs=0.15)


@pytest.mark.parametrize(
    ("shifted", "message"),
    [
        ([], "at least one data set"),
        (Outputs(np.eye(5) * 3), "no labels"),
        ((np.ones((3, 4)) * [1, 2, 3, 4], [0, 1, 2], np.ones((3, 2))), "4 classes, but the validation set has 5"),
        ((np.eye(5) * 3, np.arange(5), np.ones((5, 3))), "3 layers, but the validation set has 2"),
        ((np.eye(5) * np.nan, np.arange(5), np.ones((5, 2))), r"shifted\[0\] logits must be finite"),
    ],
)
def test_bad_shifted_data_are_named(shifted, message):
    logits, labels, distances = make_domain(200, 0.0, 0)
    with pytest.raises(ValueError, match=message):
        DAC().fit(logits, labels, distances=distances, shifted=shifted)


def test_the_temperature_of_a_shift_fit_asks_for_the_logits(fitted):
    with pytest.raises(ValueError, match="depends on logits"):
        fitted.temperatures(distances=np.ones((2, 2)))


def test_a_chain_without_dac_refuses_shifted_data():
    logits, labels, distances = make_domain(200, 0.0, 0)
    chain = densecal.make_calibrator("ts+ets")
    with pytest.raises(ValueError, match="only 'dac' is. Omit shifted="):
        chain.fit(logits, labels, shifted=[(logits, labels, distances)])


def make_calibrated_domain(samples: int, spread: float, shift: float, seed: int):
    """A classifier that is calibrated on clean data before any fit; a larger spread makes it more accurate."""
    rng = np.random.default_rng(seed)
    honest = rng.normal(0, spread, (samples, 5))
    labels = (honest + rng.gumbel(size=honest.shape)).argmax(axis=1)
    logits = honest + rng.normal(0, 1 + 2.5 * shift, (samples, 5)) * shift * spread / 2
    distances = np.stack([0.5 + 0.4 * shift + rng.normal(0, 0.1, samples), rng.uniform(0.4, 0.6, samples)], axis=1)
    return logits, labels, distances


@pytest.mark.parametrize(("spread", "accuracy"), [(4.0, 0.8), (30.0, 0.97)], ids=["80 % accurate", "97 % accurate"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_classifier_that_is_calibrated_on_clean_data_keeps_its_shift_fit(spread, accuracy, seed):
    logits, labels, distances = make_calibrated_domain(1000, spread, 0.0, seed)
    shifted = [make_calibrated_domain(1000, spread, shift, seed + 10) for shift in (0.3, 0.8)]
    test = make_calibrated_domain(2000, spread, 0.6, 99)
    assert (logits.argmax(axis=1) == labels).mean() == pytest.approx(accuracy, abs=0.04)
    dac = DAC().fit(logits, labels, distances=distances, shifted=shifted)
    assert dac.loss_ > dac.uncalibrated_loss_, "a guard against any loss on clean data would drop this fit"
    assert dac.shift_fitted
    assert 0 < dac.clean_cost_["nll"] < 0.02
    assert ece(dac, test) < 0.75 * ece(TemperatureScaling(loss="nll").fit(logits, labels), test)


def test_the_price_of_robustness_is_an_argument_and_part_of_the_file(tmp_path):
    logits, labels, distances = make_calibrated_domain(1000, 4.0, 0.0, 0)
    shifted = [make_calibrated_domain(1000, 4.0, 0.8, 10)]
    with pytest.warns(densecal.CalibrationWarning, match=r"beyond max_clean_cost: nll \+0\.\d+ \(allowed \+0\.0000\)"):
        strict = DAC(max_clean_cost=(0.5, 0.0)).fit(logits, labels, distances=distances, shifted=shifted)
    assert not strict.shift_fitted
    assert strict.clean_cost_["nll"] > 2 * strict.clean_cost_["nll_error"]
    strict.save(tmp_path / "dac.densecal")
    loaded = densecal.load(tmp_path / "dac.densecal")
    assert loaded.clean_cost_ == strict.clean_cost_
    assert tuple(loaded.max_clean_cost) == (0.5, 0.0)


@pytest.mark.parametrize("scale", [0.4, 1.0])
@pytest.mark.parametrize("wrong", [lambda labels: np.roll(labels, 1), lambda labels: (labels + 1) % 5])
def test_labels_that_do_not_belong_to_the_shifted_data_are_noticed(scale, wrong):
    logits, labels, distances = make_domain(2000, 0.0, 0)
    far_logits, far_labels, far_distances = make_domain(2000, 0.4, 1)
    with pytest.warns(densecal.CalibrationWarning, match=r"no better than chance: .*, with shuffled labels .* ±"):
        dac = DAC().fit(
            scale * logits, labels, distances=distances, shifted=(scale * far_logits, wrong(far_labels), far_distances)
        )
    assert not dac.shift_fitted
    assert dac.loss_ <= dac.uncalibrated_loss_


def test_wrong_labels_of_one_domain_are_noticed_and_it_is_named():
    logits, labels, distances = make_domain(2000, 0.0, 0)
    domains = {name: make_domain(2000, shift, 1) for name, shift in {"fog/1": 0.2, "rain": 0.4}.items()}
    far_logits, far_labels, far_distances = domains["rain"]
    domains["rain"] = (far_logits, np.roll(far_labels, 1), far_distances)
    with pytest.warns(densecal.CalibrationWarning, match="On the shifted data 'rain' the classifier is no better"):
        DAC().fit(logits, labels, distances=distances, shifted=domains)


@pytest.mark.parametrize("limit", [0.05, "ab", (0.1,), (1, 2, 3), {"ece": 1}])
def test_a_price_that_is_none_is_refused_before_the_fit(limit):
    logits, labels, distances = make_domain(100, 0.0, 0)
    with pytest.raises(ValueError, match=r"max_clean_cost must be \(ece, nll\), two numbers, or None"):
        DAC(max_clean_cost=limit).fit(logits, labels, distances=distances, shifted=(logits, labels, distances))


def test_the_guard_can_be_turned_off():
    logits, labels, distances = make_domain(2000, 0.0, 0)
    wrong = (logits, np.roll(labels, 1), distances + 0.3)
    assert DAC(max_clean_cost=None).fit(logits, labels, distances=distances, shifted=wrong).shift_fitted


@pytest.mark.parametrize("kind", ["few", "one class", "imbalanced"])
def test_accurate_predictions_on_shifted_data_pass_whatever_their_classes(kind):
    logits, labels, distances = make_domain(2000, 0.0, 0)
    far_logits, far_labels, far_distances = make_domain(2000, 0.3, 1)
    right = far_logits.argmax(axis=1) == far_labels
    rows = {
        "few": np.flatnonzero(right)[:5],
        "one class": np.flatnonzero(right & (far_labels == 2)),
        "imbalanced": np.append(np.flatnonzero(right & (far_labels == 2))[:190], np.flatnonzero(right)[:10]),
    }[kind]
    shifted = (far_logits[rows], far_labels[rows], far_distances[rows])
    assert DAC(max_clean_cost=(9, 9)).fit(logits, labels, distances=distances, shifted=shifted).shift_fitted


def test_too_few_clean_samples_for_a_shift_fit_are_named():
    logits, labels, distances = make_domain(100, 0.0, 0)
    with pytest.raises(ValueError, match="at least 10 clean validation samples, got 1"):
        DAC().fit(logits[:1], labels[:1], distances=distances[:1], shifted=(logits, labels, distances))


@pytest.mark.parametrize(("classes", "accuracy", "samples"), [(2, 0.68, 30), (2, 0.65, 300), (10, 0.3, 20)])
def test_a_few_samples_of_an_overconfident_classifier_are_not_taken_for_wrong_labels(classes, accuracy, samples):
    labels = np.arange(samples) % classes
    shown = np.where(np.arange(samples) < accuracy * samples, labels, (labels + 1) % classes)
    logits = 5.0 * np.eye(classes)[shown]
    assert accuracy_at_chance(logits, labels) is None
    assert accuracy_at_chance(np.repeat(logits, 20, axis=0), np.roll(np.repeat(labels, 20), 20)) is not None


def test_the_right_labels_of_a_rare_class_are_not_taken_for_wrong_ones():
    rows = np.arange(400)
    labels, predicted = (rows < 20).astype(int), ((rows >= 14) & (rows < 34)).astype(int)
    logits = np.random.default_rng(0).uniform(3, 4, (400, 1)) * np.eye(2)[predicted]
    distances = np.linspace(0.4, 0.6, 400)[:, None]
    dac = DAC().fit(logits, labels, distances=distances, shifted=(logits, labels, distances + 0.1))
    assert dac.shift_fitted, "at chance the accuracy is 90.5 % and hardly varies, and it is 93 %"
    assert accuracy_at_chance([3.5, 0] * np.ones((400, 2)), labels) is None, "one class alone is predicted"
    with pytest.warns(densecal.CalibrationWarning, match="no better than chance"):
        DAC().fit(logits, labels, distances=distances, shifted=(logits, np.roll(labels, 200), distances + 0.1))


def test_a_classifier_whose_scores_are_all_alike_can_be_fitted_with_shifted_data():
    rng = np.random.default_rng(0)
    parts = []
    for share, offset in ((0.05, 0.0), (0.3, 0.5)):
        labels, wrong = rng.integers(0, 2, 1000), rng.random(1000) < share
        # As of a decision tree: every prediction has the same probability.
        parts.append((10.3 * np.eye(2)[labels ^ wrong], labels, offset + rng.uniform(0.4, 0.6, (1000, 1))))
    (logits, labels, distances), (far_logits, _, far_distances) = parts
    dac = DAC().fit(logits, labels, distances=distances, shifted={"noise": parts[1]})
    assert dac.estimate_accuracy(logits, distances=distances).accuracy == pytest.approx(0.95, abs=0.02)
    assert dac.estimate_accuracy(far_logits, distances=far_distances).accuracy == pytest.approx(0.7, abs=0.05)


def test_a_domain_with_the_labels_of_other_classes_is_left_out_of_the_fit():
    logits, labels, distances = make_domain(2000, 0.0, 0)
    domains = {f"fog/{level}": make_domain(500, 0.2 * level, level) for level in (1, 2, 3)}
    right = DAC().fit(logits, labels, distances=distances, shifted=domains)
    far_logits, _, far_distances = make_domain(500, 0.8, 4)
    domains["fog/4"] = (far_logits, (far_logits.argmax(axis=1) + 1) % far_logits.shape[1], far_distances)
    with pytest.warns(densecal.CalibrationWarning, match=r"'fog/4' were left out.*the accuracy is 0\.0%"):
        dac = DAC().fit(logits, labels, distances=distances, shifted=domains)
    assert dac.weights_.tolist() == right.weights_.tolist()
    expected, found = (each.estimate_accuracy(far_logits, distances=far_distances) for each in (right, dac))
    assert found.accuracy == expected.accuracy


def test_a_hard_domain_of_mostly_one_class_is_kept():
    rng = np.random.default_rng(0)

    def domain(shift, accuracy):
        labels = rng.choice(3, 2000, p=[0.9, 0.05, 0.05])
        common = np.flatnonzero(labels == 0)
        # Spurious predictions of a rare class, and none of those that are there.
        night = np.where(np.isin(np.arange(2000), common[:110]), 1, 0)
        predicted = np.where(rng.random(2000) < accuracy, labels, 2) if accuracy else night
        return 3.5 * np.eye(3)[predicted] + rng.normal(0, 0.3, (2000, 3)), labels, rng.normal(shift, 0.05, (2000, 1))

    logits, labels, distances = domain(0.4, 0.97)
    shifted = {"mild": domain(0.45, 0.94), "night": domain(0.7, 0.0)}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", densecal.CalibrationWarning)
        DAC(max_clean_cost=(9, 9)).fit(logits, labels, distances=distances, shifted=shifted)
    assert not [str(one.message) for one in caught if "left out" in str(one.message)]


@pytest.mark.filterwarnings("ignore:The validation set has so few errors")
@pytest.mark.parametrize("unit", [10.0, 3e5, 1e7])
def test_the_unit_of_scores_that_are_all_alike_does_not_matter(unit):
    rng = np.random.default_rng(0)

    def domain(share, distance):
        predicted, wrong = rng.integers(0, 3, 1000), rng.random(1000) < share
        return unit * (np.eye(3)[predicted] - 0.5), (predicted + wrong) % 3, rng.normal(distance, 0.05, (1000, 1))

    logits, labels, distances = domain(0.1, 0.4)
    dac = DAC(max_clean_cost=None).fit(logits, labels, distances=distances, shifted={"noise": domain(0.4, 0.6)})
    assert np.isfinite(dac.temperatures(logits, distances=distances)).all()


def test_a_ruinous_clean_cost_is_refused_however_uncertain_it_is():
    cost = {"ece": -0.3, "ece_error": 0.02, "nll": 77.9, "nll_error": 41.0}
    with pytest.warns(densecal.CalibrationWarning, match=r"beyond max_clean_cost: nll \+77\.9"):
        assert not accepts_cost(cost, CleanCost())
    assert accepts_cost(cost, CleanCost(0.01, 100.0))


@pytest.mark.filterwarnings("ignore:The validation set has so few errors")
def test_the_shift_fit_survives_a_few_confident_mistakes_on_clean_data():
    rng = np.random.default_rng(0)
    logits, labels, distances = make_domain(20_000, 0.0, 10)
    is_right = logits.argmax(axis=1) == labels
    mistakes = np.flatnonzero(~is_right)
    confident = mistakes[np.argsort(logits[mistakes].max(axis=1))[-3:]]
    val = rng.permutation(np.append(np.flatnonzero(is_right)[:1600], confident))
    clean = Outputs(logits[val], labels[val]).with_distances(distances[val])
    fitted = DAC().fit(clean, shifted=[make_domain(4000, shift, 11) for shift in (0.2, 0.8)])
    assert fitted.accuracy_model_ is not None
    assert np.median(fitted.confidence(clean)) < 1


def test_estimates_of_a_classifier_without_mistakes_on_clean_data_are_near_the_truth():
    logits, labels, distances = make_domain(4000, 0.0, 0)
    right = np.flatnonzero(logits.argmax(axis=1) == labels)[:150]
    domains = {f"fog/{level}": make_domain(300, 0.3 * level, level) for level in (1, 2, 3)}
    with pytest.warns(densecal.CalibrationWarning, match="Every validation sample is classified correctly"):
        dac = DAC().fit(logits[right], labels[right], distances=distances[right], shifted=domains)
    clean = dac.estimate_accuracy(logits[right], distances=distances[right])
    assert clean.accuracy > 0.95 and clean.low < 0.98
    far_logits, far_labels, far_distances = make_domain(2000, 0.6, 9)
    far = dac.estimate_accuracy(far_logits, distances=far_distances)
    truth = (far_logits.argmax(axis=1) == far_labels).mean()
    assert far.low <= truth <= far.high
    monitor = densecal.Monitor(dac, alarm_below=0.8, window=1000)
    assert monitor.effective_limit > 0.5


def test_a_domain_that_a_shift_makes_worse_than_chance_is_kept():
    rng = np.random.default_rng(0)

    def draw(samples, share, distance):
        """A classifier that goes by the background, which belongs to the label in this share of the samples."""
        labels = rng.integers(2, size=samples)
        background = np.where(rng.random(samples) < share, labels, 1 - labels)
        logits = 4.0 * np.eye(2)[background] + rng.normal(size=(samples, 2))
        return logits, labels, distance + 0.1 * rng.random((samples, 1))

    logits, labels, distances = draw(2000, 0.95, 0.5)
    shifted = {"background/weak": draw(1500, 0.8, 0.7), "background/flipped": draw(500, 0.1, 1.0)}
    dac = DAC().fit(logits, labels, distances=distances, shifted=shifted)
    far_logits, _, far_distances = shifted["background/flipped"]
    assert dac.estimate_accuracy(far_logits, distances=far_distances).accuracy < 0.55


def test_far_outliers_in_a_batch_do_not_change_what_its_other_inputs_get():
    logits, labels, distances = make_domain(2000, 0.0, 0)
    domains = {f"fog/{level}": make_domain(500, 0.2 * level, level) for level in (1, 2, 3)}
    dac = DAC().fit(logits, labels, distances=distances, shifted=domains)
    batch, _, near = make_domain(600, 0.0, 9)
    expected = dac.predict_proba(batch, distances=near)[360:].max(axis=1).mean()
    for outliers in (60, 120, 360):
        mixed = near.copy()
        mixed[:outliers] = 1e4
        adapted = dac.adapted_to(batch, distances=mixed)
        found = adapted.predict_proba(batch, distances=mixed)[360:].max(axis=1).mean()
        assert found == pytest.approx(expected, abs=0.05)


def test_shifted_data_of_unequal_lengths_are_named():
    logits, labels, distances = make_domain(500, 0.0, 0)
    shifted = {"a/weak": (logits[:200], labels[:200], distances[:50]), "b": (logits, labels, distances)}
    with pytest.raises(ValueError, match=r"shifted\['a/weak'\] has logits of 200 samples, but distances of 50"):
        DAC().fit(logits, labels, distances=distances, shifted=shifted)
