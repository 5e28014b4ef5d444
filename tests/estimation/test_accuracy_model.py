from __future__ import annotations

import numpy as np
import pytest
from scipy.special import logit

from densecal.errors import ArtefactError
from densecal.estimation.accuracy_model import AccuracyModel
from densecal.estimation.moments import Moments


def draw(samples: int, accuracy: float, seed: int):
    """Signals of a classifier that is too sure by half of what it loses under shift, and whether it is right."""
    rng = np.random.default_rng(seed)
    confidence = np.clip(rng.normal((accuracy + 0.95) / 2, 0.05, samples), 0, 1)
    entropy = rng.normal(1.5 * (1 - accuracy), 0.1, samples)
    return np.column_stack([confidence, entropy]), rng.random(samples) < accuracy


def learn(signals, correct, names):
    """Learn from shifted samples that have drifted by 0.5 and 2 standard deviations in two layers."""
    return AccuracyModel.learn(signals, correct, names, np.tile([0.5, 2.0], (len(names), 1)))


@pytest.fixture(scope="module")
def model():
    accuracies = {"a/weak": 0.9, "a/strong": 0.6, "b/weak": 0.8, "b/strong": 0.5, "c": 0.7}
    parts = [draw(2000, 0.95, 0)] + [draw(400, accuracy, 1 + i) for i, accuracy in enumerate(accuracies.values())]
    signals, correct = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return learn(signals, correct, np.repeat(list(accuracies), 400))


@pytest.mark.parametrize("accuracy", [0.95, 0.85, 0.65, 0.55])
def test_the_accuracy_of_a_new_domain_is_predicted_within_the_interval(model, accuracy):
    signals, correct = draw(2000, accuracy, 50)
    found = model.interval(signals)
    assert abs(found.accuracy - correct.mean()) < 0.06
    assert found.low <= correct.mean() <= found.high


def test_the_bounds_are_whole_samples_within_zero_and_one(model):
    for count in (1, 3, 40):
        found = model.interval(draw(count, 0.95, 51)[0])
        assert 0 <= found.low <= found.high <= 1
        assert found.low * count == pytest.approx(round(found.low * count))
    assert found.high == 1


def test_kinds_are_counted_by_the_part_before_the_slash(model):
    assert model.n_kinds == 3


def test_a_state_restores_the_same_regression(model):
    signals = draw(100, 0.8, 52)[0]
    assert AccuracyModel.from_state(model.state()).interval(signals) == model.interval(signals)
    state = model.state()
    state["newer"] = state.pop("intercept")
    with pytest.raises(ArtefactError, match="another version of densecal.*intercept, newer.*Fit it again"):
        AccuracyModel.from_state(state)


def test_one_kind_of_shift_is_less_certain_than_three(model):
    parts = [draw(2000, 0.95, 0), draw(2000, 0.6, 1)]
    signals, correct = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    alone = learn(signals, correct, ["a"] * 2000)
    assert alone.relative_error > model.relative_error


def test_fewer_validation_samples_are_less_certain(model):
    signals, correct = (np.concatenate(arrays) for arrays in zip(draw(200, 0.95, 0), draw(200, 0.6, 1), strict=True))
    few = learn(signals, correct, ["a/weak"] * 100 + ["b/weak"] * 100)
    widths = [one.interval(draw(2000, 0.7, 53)[0]) for one in (few, model)]
    assert widths[0].high - widths[0].low > widths[1].high - widths[1].low


def unlike_every_domain(samples: int):
    """Signals of a batch that is surer than clean data, with an entropy that no domain has."""
    rng = np.random.default_rng(54)
    confidence = np.clip(rng.normal(0.985, 0.005, samples), 0, 1)
    return np.column_stack([confidence, rng.normal(-0.5, 0.1, samples)])


def test_a_batch_unlike_every_domain_is_hardly_believed_to_beat_clean_data(model):
    signals = unlike_every_domain(2000)
    promised, clean = model.predict(signals), model.predict(draw(2000, 0.95, 0)[0])
    assert promised > clean + 0.01
    assert model.interval(signals).accuracy - clean < 0.4 * (promised - clean)


def test_a_correction_is_believed_less_the_further_beyond_the_domains(model):
    """The mean confidence of ``draw`` is too high by half of the loss: how much of that is corrected."""

    def corrected(accuracy: float) -> float:
        signals, _ = draw(2000, accuracy, 57)
        confidence = signals[:, 0].mean()
        return (confidence - model.predict(signals)) / (confidence - accuracy)

    inside, beyond, far = (corrected(accuracy) for accuracy in (0.65, 0.35, 0.1))
    assert inside > 0.8 > beyond > far > 0


def test_chance_explains_less_in_a_large_batch_and_shift_is_more_than_chance(model):
    shifts = [abs(model.shift_of(draw(2000, 0.95, 60 + seed)[0])) for seed in range(20)]
    assert np.mean(np.array(shifts) < 2 * model.chance_of(2000)) > 0.8
    assert model.chance_of(20) > 3 * model.chance_of(2000)
    assert model.shift_of(draw(2000, 0.9, 80)[0]) > 4 * model.chance_of(2000)


def test_a_clean_batch_that_happens_to_be_easy_is_believed(model):
    signals, correct = draw(2000, 0.965, 55)
    assert model.interval(signals).accuracy == pytest.approx(correct.mean(), abs=0.015)


def test_the_interval_of_a_batch_unlike_every_domain_is_wide(model):
    seen, unseen = (model.interval(signals) for signals in (draw(2000, 0.95, 56)[0], unlike_every_domain(2000)))
    assert unseen.high - unseen.low > 1.2 * (seen.high - seen.low)


@pytest.mark.parametrize("accuracy", [0.35, 0.2])
def test_the_interval_still_holds_where_the_correction_is_withheld(model, accuracy):
    signals, correct = draw(2000, accuracy, 57)  # further than any domain, and too sure by as much more
    found = model.interval(signals)
    assert found.low <= correct.mean() <= found.high


def test_a_domain_may_be_called_clean():
    parts = [draw(2000, 0.95, 0), draw(400, 0.6, 1)]
    signals, correct = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    assert learn(signals, correct, ["clean"] * 400).n_kinds == 1


@pytest.mark.parametrize(
    ("drift", "n_samples", "expected"),
    [((0.9, 1.9), 10**6, 0.95), ((3, 0), 10**6, 3), ((0, 6), 10**6, 3), ((-0.9, 0), 10**6, 0.9), ((0, -3), 10**6, 3)],
)
def test_samples_are_extrapolated_from_the_farthest_domain_or_one_standard_deviation(model, drift, n_samples, expected):
    assert model.extrapolation(np.tile(drift, (n_samples, 1))) == pytest.approx(expected, abs=0.01)


def test_a_single_clean_sample_is_no_extrapolation(model):
    rng = np.random.default_rng(0)
    found = [model.extrapolation(one) for one in rng.normal(size=(500, 1, 2))]
    assert np.mean(np.array(found) > 1) < 0.01


def test_small_batches_of_clean_samples_are_not_drawn_to_one_half(model):
    signals, _ = draw(4000, 0.95, 7)
    by_size = {size: np.mean([model.predict(part) for part in np.split(signals, 4000 // size)]) for size in (2, 2000)}
    assert by_size[2] == pytest.approx(by_size[2000], abs=0.03)


def test_the_estimate_on_clean_data_does_not_depend_on_the_number_of_domains():
    parts = [draw(2000, 0.95, 0)] + [draw(15, 0.5 + 0.4 * number / 400, 1 + number) for number in range(400)]
    signals, correct = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    correct[:2000] &= np.arange(2000) % 10 > 0  # less accurate on clean data than the domains suggest
    names = np.repeat([f"domain {number}" for number in range(400)], 15)
    many = learn(signals, correct, names).predict(signals[:2000])
    few = learn(signals, correct, np.repeat([f"domain {number}" for number in range(40)], 150)).predict(signals[:2000])
    assert many == pytest.approx(few, abs=0.01)


def test_the_interval_widens_with_the_distance_beyond_all_domains(model):
    signals, _ = draw(2000, 0.7, 3)
    widths = [one.high - one.low for one in (model.interval(signals, times) for times in (0.5, 1.0, 2.0, 4.0))]
    assert widths[0] == widths[1] < widths[2] < widths[3]
    assert widths[3] > 0.9


def test_the_upper_bound_of_a_worse_batch_is_lower():
    signals, correct = draw(50, 0.99, 0)
    shifted = [draw(400, share, 1 + number) for number, share in enumerate((0.9, 0.6, 0.3))]
    joined = [np.concatenate(arrays) for arrays in zip((signals, correct), *shifted, strict=True)]
    few = learn(*joined, np.repeat(["fog/1", "fog/2", "rain/1"], 400))
    bounds = [
        few.upper_bound(Moments(1000, np.array([share, 0.5]), np.outer([share, 0.5], [share, 0.5])), 0.9999)
        for share in np.linspace(0.95, 0.02, 60)
    ]
    assert (np.diff(bounds) <= 1e-9).all()


@pytest.mark.parametrize("accuracy", [0.95, 0.8, 0.6])
def test_the_estimate_on_the_validation_data_is_their_accuracy(accuracy):
    """Also where no line through the shifted domains passes through the clean data."""
    clean, correct = draw(1000, accuracy, 0)
    far = [draw(300, 0.5 * accuracy, seed) for seed in (1, 2, 3)]
    signals = np.concatenate([clean, *(one + np.array([0.15, 0.6]) for one, _ in far)])
    labels = np.concatenate([correct, *(right for _, right in far)])
    found = learn(signals, labels, np.repeat(["a", "b", "c"], 300)).interval(clean)
    assert found.accuracy == pytest.approx(correct.mean(), abs=0.001)
    assert found.low < correct.mean() < found.high


def test_the_order_of_the_samples_does_not_change_the_error_on_unseen_kinds():
    accuracies = {"a/weak": 0.9, "a/strong": 0.5, "b/weak": 0.85, "b/strong": 0.6, "c/weak": 0.8, "c/strong": 0.4}
    parts = [draw(2000, 0.95, 0)] + [draw(400, accuracy, 1 + i) for i, accuracy in enumerate(accuracies.values())]
    signals, correct = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    names = np.repeat(list(accuracies), 400)
    errors = []
    for seed in range(6):
        rng = np.random.default_rng(seed)
        clean, shifted = rng.permutation(2000), rng.permutation(2400)
        rows = np.concatenate([clean, 2000 + shifted])
        errors.append(learn(signals[rows], correct[rows], names[shifted]).relative_error)
    assert max(errors) == pytest.approx(min(errors), rel=1e-6)


def test_kinds_that_disagree_widen_the_interval_more_below_the_estimate_than_above():
    def interval(harm: float):
        """That of a model of three kinds, one of which lowers the accuracy by more than the signals say."""
        parts = [draw(4000, 0.95, 0), draw(2000, 0.7, 1), draw(2000, 0.7, 2), draw(2000, 0.7, 3)]
        signals, correct = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
        correct[8000:] &= np.random.default_rng(4).random(2000) > harm
        return learn(signals, correct, np.repeat(["a", "b", "c"], 2000)).interval(draw(20_000, 0.7, 5)[0])

    alike, unlike = interval(0.0), interval(0.6)
    assert unlike.high - unlike.low > 1.5 * (alike.high - alike.low)
    low, middle, high = logit([unlike.low, unlike.accuracy, unlike.high])
    assert middle - low > 1.2 * (high - middle)


def test_a_promise_that_is_not_believed_widens_the_interval(model):
    """A batch unlike every domain that looks easier than clean data may as well be much harder."""
    found = model.interval(unlike_every_domain(2000))
    assert found.accuracy > 0.95 and found.low < 0.6


def test_only_named_domains_are_counted(model):
    assert model.n_domains == 5
