from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from densecal.metrics import (
    METRICS,
    Resamples,
    accuracy,
    auroc,
    bootstrap_interval,
    brier_score,
    expected_calibration_error,
    group_weights,
    kernel_density,
    macro_bootstrap,
    ood_scores,
)
from densecal.metrics.resampling import ood_replicates

OF_ONE_SET = [name for name, metric in METRICS.items() if metric.needs != "in and out of domain"]


def predictions(seed=0, samples=80, classes=4, decimals=None):
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.full(classes, 0.5), size=samples)
    if decimals is not None:
        probabilities = np.round(probabilities, decimals)
        probabilities /= probabilities.sum(axis=1, keepdims=True)
    labels = np.where(rng.random(samples) < 0.6, probabilities.argmax(axis=1), rng.integers(0, classes, samples))
    return probabilities, labels


@pytest.mark.parametrize("decimals", [None, 1], ids=["distinct", "tied"])
@pytest.mark.parametrize("name", OF_ONE_SET)
def test_the_fast_path_equals_the_metric_of_each_resample(name, decimals, monkeypatch):
    probabilities, labels = predictions(decimals=decimals)
    draws = Resamples(80, n_resamples=12, seed=3)
    fast = draws.replicates(name, probabilities, labels)
    # All resamples share the bandwidth of the whole sample.
    whole = kernel_density.bandwidth_of(probabilities.max(axis=1), probabilities.argmax(axis=1) == labels)
    monkeypatch.setattr(kernel_density, "bandwidth_of", lambda confidence, correct: whole)
    counts = np.concatenate(list(draws.blocks())).astype(int)
    slow = [METRICS[name](np.repeat(probabilities, row, axis=0), np.repeat(labels, row)) for row in counts]
    assert counts.sum(axis=1).tolist() == [80] * 12
    np.testing.assert_allclose(fast, slow, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("options", [{"norm": "l2"}, {"norm": "max"}, {"n_bins": 4}, {"binning": "mass", "n_bins": 7}])
def test_the_fast_path_knows_the_options(options):
    probabilities, labels = predictions(1)
    confidence, correct = probabilities.max(axis=1), probabilities.argmax(axis=1) == labels
    draws = Resamples(80, n_resamples=6)
    fast = draws.replicates(expected_calibration_error, confidence, correct, **options)
    slow = draws.replicates(lambda p, y: expected_calibration_error(p, y, **options), confidence, correct)
    np.testing.assert_allclose(fast, slow, rtol=1e-5, atol=1e-6)
    bound = draws.replicates(partial(expected_calibration_error, **options), confidence, correct)
    np.testing.assert_array_equal(bound, fast)


def test_counts_drawn_in_blocks_are_the_counts_drawn_at_once(monkeypatch):
    whole = np.concatenate(list(Resamples(50, 20, seed=1).blocks()))
    monkeypatch.setattr("densecal.metrics.resampling._BLOCK_BYTES", 4 * 50 * 3)
    monkeypatch.setattr("densecal.metrics.resampling._KEEP_BYTES", 0)
    blocks = list(Resamples(50, 20, seed=1).blocks())
    assert len(blocks) == 7
    np.testing.assert_array_equal(np.concatenate(blocks), whole)


def test_fewer_resamples_are_the_first_of_more():
    few, many = (np.concatenate(list(Resamples(50, count, seed=1).blocks())) for count in (5, 20))
    np.testing.assert_array_equal(few, many[:5])


def test_an_interval_is_the_same_for_the_same_seed_only():
    probabilities, labels = predictions()
    first, again, other = (bootstrap_interval("ece", probabilities, labels, seed=seed) for seed in (0, 0, 1))
    assert first == again
    assert first != other


def test_the_interval_of_a_mean_agrees_with_the_normal_approximation():
    correct = np.random.default_rng(0).random(2000) < 0.7
    interval = bootstrap_interval(accuracy, np.full(2000, 0.7), correct, n_resamples=4000)
    error = 1.96 * np.sqrt(correct.mean() * (1 - correct.mean()) / 2000)
    assert interval.low == pytest.approx(correct.mean() - error, abs=0.001)
    assert interval.high == pytest.approx(correct.mean() + error, abs=0.001)


def test_the_basic_interval_covers_the_true_ece_more_often_than_the_percentile_interval():
    rng = np.random.default_rng(0)
    covered = {"basic": 0, "percentile": 0}
    for trial in range(60):
        confidence = rng.uniform(0.5, 1, size=600)
        correct = rng.random(600) < confidence - 0.05
        for method in covered:
            interval = bootstrap_interval("ece", confidence, correct, n_resamples=150, seed=trial, method=method)
            covered[method] += interval.low <= 0.05 <= interval.high
    assert covered["basic"] >= 48
    assert covered["basic"] > covered["percentile"]


def test_an_interval_stays_within_the_metrics_range():
    interval = bootstrap_interval("ece", np.full(30, 0.5), np.arange(30) % 2 == 0)
    assert interval.low == 0.0
    assert 0.0 <= interval.high <= 1.0


def test_any_function_of_probabilities_and_labels_has_an_interval():
    probabilities, labels = predictions()

    def top2_accuracy(p, y):
        return float(np.mean((np.argsort(p, axis=1)[:, -2:] == y[:, None]).any(axis=1)))

    interval = bootstrap_interval(top2_accuracy, probabilities, labels, n_resamples=50)
    assert interval.low < interval.estimate < interval.high


def test_an_ood_metric_draws_the_two_data_sets_separately():
    rng = np.random.default_rng(0)
    inside, outside = rng.normal(1, 1, size=300), rng.normal(0, 1, size=200)
    interval = bootstrap_interval("auroc", inside, outside, n_resamples=300)
    assert interval.estimate == auroc(inside, outside)
    # Hanley and McNeil's standard error for this area is about 0.022.
    assert interval.high - interval.low == pytest.approx(2 * 1.96 * 0.022, rel=0.25)
    assert bootstrap_interval("auroc", inside, outside, reference=(inside, outside), n_resamples=5).high == 0.0


def test_one_draw_of_both_data_sets_serves_all_ood_metrics():
    rng = np.random.default_rng(0)
    inside, outside = rng.beta(5, 2, 300), rng.beta(3, 3, 200)
    found = ood_replicates(inside, outside, n_resamples=5, seed=7)
    assert list(found) == list(ood_scores(inside, outside).as_dict())
    for name, drawn in found.items():
        alone = bootstrap_interval(name, inside, outside, n_resamples=5, seed=7, method="percentile", level=0.5)
        assert (alone.low, alone.high) == tuple(np.quantile(drawn, [0.25, 0.75]))


def test_a_paired_difference_is_narrower_than_two_separate_intervals():
    probabilities, labels = predictions(samples=500)
    softer = 0.9 * probabilities + 0.1 / 4
    paired = bootstrap_interval(brier_score, probabilities, labels, reference=(softer, labels))
    alone = bootstrap_interval(brier_score, probabilities, labels)
    assert paired.estimate == pytest.approx(brier_score(probabilities, labels) - brier_score(softer, labels))
    assert paired.low < paired.estimate < paired.high
    assert paired.high - paired.low < 0.5 * (alone.high - alone.low)


def test_equal_calibrators_differ_by_nothing():
    probabilities, labels = predictions()
    interval = bootstrap_interval("ece", probabilities, labels, reference=(probabilities, labels))
    assert (interval.estimate, interval.low, interval.high) == (0.0, 0.0, 0.0)
    assert not interval.excludes_zero


def test_a_method_that_changes_predictions_brings_its_own_correctness():
    reference = ([0.9, 0.9], [False, False])
    interval = bootstrap_interval("accuracy", [0.9, 0.9], [True, True], reference=reference, n_resamples=5)
    assert (interval.estimate, interval.excludes_zero) == (1.0, True)


def test_the_mean_over_severities_weighs_the_clean_test_set_as_one_severity():
    weights = group_weights([0] + [s for s in range(1, 6) for _ in range(18)])
    assert weights[0] == pytest.approx(1 / 6)
    assert weights[1:].sum() == pytest.approx(5 / 6)
    np.testing.assert_allclose(weights[1:], 1 / 108)


def test_a_macro_average_is_the_mean_within_and_then_over_groups():
    conditions = [predictions(seed) for seed in range(5)]
    groups = [0, 1, 1, 2, 2]
    each = [expected_calibration_error(*pair) for pair in conditions]
    interval = macro_bootstrap("ece", conditions, groups=groups)
    assert interval.estimate == pytest.approx((each[0] + (each[1] + each[2]) / 2 + (each[3] + each[4]) / 2) / 3)
    assert macro_bootstrap("ece", conditions).estimate == pytest.approx(np.mean(each))


def test_conditions_of_the_same_images_are_drawn_together():
    # The same data twice: a mean over both must be as uncertain as one, not narrower by the root of two.
    pair = predictions(samples=300)
    once = bootstrap_interval("brier", *pair)
    twice = macro_bootstrap("brier", [pair, pair])
    assert (twice.low, twice.high) == pytest.approx((once.low, once.high))


def test_a_paired_macro_difference_uses_the_same_draws_for_both_calibrators():
    a = [predictions(seed, samples=300) for seed in range(3)]
    b = [(0.8 * probabilities + 0.2 / 4, labels) for probabilities, labels in a]
    interval = macro_bootstrap("nll", a, reference=b, n_resamples=200)
    separate = macro_bootstrap("nll", a, n_resamples=200).estimate - macro_bootstrap("nll", b, n_resamples=200).estimate
    assert interval.estimate == pytest.approx(separate)
    draws = Resamples(300, 200)
    difference = np.mean(
        [draws.replicates("nll", *x) - draws.replicates("nll", *y) for x, y in zip(a, b, strict=True)], axis=0
    )
    low, high = np.quantile(difference, [0.025, 0.975])
    assert (interval.low, interval.high) == pytest.approx((2 * separate - high, 2 * separate - low))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda p, y: bootstrap_interval("ecee", p, y), "one of accuracy, ece.* got 'ecee'"),
        (lambda p, y: bootstrap_interval("ece", p, y, level=95), "level must lie between 0 and 1"),
        (lambda p, y: bootstrap_interval("ece", p, y, method="bca"), "method must be"),
        (lambda p, y: bootstrap_interval("ece", p, y, n_resamples=0), "n_resamples must be at least 1"),
        (lambda p, y: bootstrap_interval("ece", p, y, binning="round"), "binning must be"),
        (lambda p, y: macro_bootstrap("ece", []), "at least one"),
        (lambda p, y: macro_bootstrap("ece", [(p, y), (p[:5], y[:5])]), r"same samples.*\[5, 80\]"),
        (lambda p, y: macro_bootstrap("ece", [(p, y)], groups=[0, 1]), "one group for each of 1 conditions, got 2"),
        (lambda p, y: bootstrap_interval(3, p, y), "metric must be a function or one of accuracy, .*got 3"),
        (lambda p, y: macro_bootstrap("auroc", [(p, y)]), "metric must be a function of"),
        (lambda p, y: macro_bootstrap("ece", [(p, y)], reference=[]), "the same 1 conditions, got 0"),
        (lambda p, y: Resamples(79).replicates("ece", p, y), "resamples are for 79 samples, got 80"),
    ],
)
def test_what_cannot_be_resampled_is_refused_with_a_reason(call, message):
    with pytest.raises(ValueError, match=message):
        call(*predictions())
