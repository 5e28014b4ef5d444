from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from densecal.metrics import (
    classwise_calibration_error,
    expected_calibration_error,
    kolmogorov_smirnov_error,
    reliability_curve,
)


def random_predictions(seed, samples=500, classes=7, sharpness=2.0):
    rng = np.random.default_rng(seed)
    logits = sharpness * rng.normal(size=(samples, classes))
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = np.array([rng.choice(classes, p=row) for row in probabilities])
    return probabilities, labels


def ece_by_loops(confidence, correct, n_bins):
    total = 0.0
    for i in range(n_bins):
        inside = (confidence > i / n_bins) & (confidence <= (i + 1) / n_bins)
        if i == 0:
            inside |= confidence == 0
        if inside.any():
            total += inside.mean() * abs(correct[inside].mean() - confidence[inside].mean())
    return total


def test_a_confidence_of_exactly_one_belongs_to_the_last_bin():
    curve = reliability_curve([1.0, 1.0, 0.97], [True, False, True])
    assert curve.counts[-1] == 3


def test_a_confidence_of_exactly_zero_belongs_to_the_first_bin():
    curve = reliability_curve([0.0, 0.05], [False, True])
    assert curve.counts[0] == 2
    assert expected_calibration_error([0.0, 0.0], [True, True]) == 1.0


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_bins", [1, 3, 7, 10, 15, 49])
def test_a_confidence_on_an_edge_belongs_to_the_bin_below_it_in_every_precision(dtype, n_bins):
    on_edges = (np.arange(1, n_bins + 1) / n_bins).astype(dtype)
    curve = reliability_curve(on_edges, np.ones(n_bins, bool), n_bins=n_bins)
    np.testing.assert_array_equal(curve.counts, np.ones(n_bins))


def test_ece_by_hand():
    confidence = np.array([0.95, 0.95, 0.35, 0.35])
    correct = np.array([True, False, False, True])
    assert expected_calibration_error(confidence, correct, n_bins=10) == pytest.approx((0.45 + 0.15) / 2)
    assert expected_calibration_error(confidence, correct, n_bins=10, norm="max") == pytest.approx(0.45)
    l2 = np.sqrt((0.45**2 + 0.15**2) / 2)
    assert expected_calibration_error(confidence, correct, n_bins=10, norm="l2") == pytest.approx(l2)


def test_a_perfectly_sure_and_correct_classifier_has_no_error():
    probabilities, labels = np.eye(4), np.arange(4)
    assert expected_calibration_error(probabilities, labels) == 0.0
    assert classwise_calibration_error(probabilities, labels) == 0.0
    assert kolmogorov_smirnov_error(probabilities, labels) == 0.0


def test_one_sample_is_enough():
    assert expected_calibration_error([[0.25, 0.75]], [1]) == 0.25
    assert expected_calibration_error([[0.25, 0.75]], [1], binning="mass") == 0.25
    assert kolmogorov_smirnov_error([[0.25, 0.75]], [1]) == 0.25


@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
@pytest.mark.parametrize("n_bins", [5, 15])
def test_ece_agrees_with_torchmetrics(norm, n_bins):
    torch = pytest.importorskip("torch")
    functional = pytest.importorskip("torchmetrics.functional.classification")
    probabilities, labels = random_predictions(0)
    theirs = functional.multiclass_calibration_error(
        torch.asarray(probabilities), torch.asarray(labels), num_classes=7, n_bins=n_bins, norm=norm
    )
    ours = expected_calibration_error(probabilities, labels, n_bins=n_bins, norm=norm)
    assert ours == pytest.approx(float(theirs), abs=1e-6)


def test_ece_agrees_with_netcal():
    netcal = pytest.importorskip("netcal.metrics")
    probabilities, labels = random_predictions(1)
    assert expected_calibration_error(probabilities, labels) == pytest.approx(
        netcal.ECE(bins=15).measure(probabilities, labels), abs=1e-6
    )


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=30), st.integers(1, 20))
def test_ece_is_the_definition_loop_by_loop(samples, n_bins):
    confidence, correct = (np.array(column) for column in zip(*samples, strict=True))
    ours = expected_calibration_error(confidence, correct, n_bins=n_bins)
    assert ours == pytest.approx(ece_by_loops(confidence, correct, n_bins), abs=1e-12)
    assert 0 <= ours <= 1


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 8), st.booleans()), min_size=1, max_size=40),
    st.integers(1, 15),
    st.randoms(use_true_random=False),
)
def test_the_order_of_the_samples_changes_no_metric_even_with_ties(samples, n_bins, random):
    shuffled = list(samples)
    random.shuffle(shuffled)
    values = []
    for pairs in (samples, shuffled):
        confidence, correct = np.array([c / 8 for c, _ in pairs]), np.array([right for _, right in pairs])
        values.append(
            [
                expected_calibration_error(confidence, correct, n_bins=n_bins),
                expected_calibration_error(confidence, correct, n_bins=n_bins, binning="mass"),
                kolmogorov_smirnov_error(confidence, correct),
            ]
        )
    assert values[0] == pytest.approx(values[1], abs=1e-12)


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 200), st.integers(1, 20), st.integers(0, 5))
def test_bins_of_equal_mass_differ_by_at_most_one_sample_without_ties(samples, n_bins, seed):
    confidence = np.random.default_rng(seed).permutation(samples) / samples
    counts = reliability_curve(confidence, np.ones(samples, bool), n_bins=n_bins, binning="mass").counts
    assert counts.sum() == samples
    assert counts.max() - counts.min() <= 1


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(0, 6), min_size=1, max_size=40), st.integers(1, 15))
def test_bins_of_equal_mass_keep_equal_confidences_together_within_the_edges_they_name(values, n_bins):
    confidence = np.array(values) / 6
    curve = reliability_curve(confidence, np.ones(len(values), bool), n_bins=n_bins, binning="mass")
    for i in range(n_bins):
        inside = (confidence > curve.edges[i]) & (confidence <= curve.edges[i + 1])
        if curve.edges[i] == 0 and (i == 0 or curve.counts[:i].sum() == 0):
            inside |= confidence == 0
        if curve.counts[i]:
            assert curve.confidence[i] == pytest.approx(confidence[inside].mean())
            assert curve.counts[i] == inside.sum()


def test_a_large_tie_fills_one_bin_of_equal_mass_and_leaves_its_neighbours_alone():
    confidence = np.concatenate([np.linspace(0.1, 0.5, 60), np.full(40, 0.9)])
    curve = reliability_curve(confidence, np.ones(100, bool), n_bins=10, binning="mass")
    np.testing.assert_array_equal(curve.counts, [10, 10, 10, 10, 10, 10, 0, 0, 40, 0])


def test_equal_mass_ece_by_hand():
    confidence, correct = np.array([0.6, 0.7, 0.8, 0.9]), np.array([True, False, True, False])
    expected = (abs(0.5 - 0.65) + abs(0.5 - 0.85)) / 2
    assert expected_calibration_error(confidence, correct, n_bins=2, binning="mass") == pytest.approx(expected)


@pytest.mark.parametrize("n_bins", [1, 2, 14, 15, 50])
def test_classwise_ece_is_the_ece_of_each_class_against_the_rest(n_bins):
    probabilities, labels = random_predictions(2, classes=5)
    each = [ece_by_loops(probabilities[:, c], labels == c, n_bins) for c in range(5)]
    assert classwise_calibration_error(probabilities, labels, n_bins=n_bins) == pytest.approx(np.mean(each))
    assert classwise_calibration_error(probabilities, labels, n_bins=n_bins, reduction="sum") == pytest.approx(
        np.sum(each)
    )


def test_classwise_ece_counts_a_class_that_no_sample_has():
    probabilities, labels = np.array([[0.5, 0.3, 0.2]] * 4), np.array([0, 0, 1, 1])
    assert classwise_calibration_error(probabilities, labels, reduction="sum") == pytest.approx(0.2 + 0.2)


def test_classwise_ece_is_the_same_however_the_rows_are_cut_into_blocks(monkeypatch):
    import densecal.arrays

    probabilities, labels = random_predictions(3, samples=100)
    whole = classwise_calibration_error(probabilities, labels)
    monkeypatch.setattr(
        "densecal.metrics.classwise_error.row_blocks",
        lambda rows, width: densecal.arrays.row_blocks(rows, width, block_bytes=7 * width),
    )
    assert classwise_calibration_error(probabilities, labels) == pytest.approx(whole, rel=1e-12)


def test_ks_is_the_largest_cumulative_gap():
    probabilities, labels = random_predictions(4)
    confidence, correct = probabilities.max(axis=1), probabilities.argmax(axis=1) == labels
    order = confidence.argsort()
    gaps = np.cumsum(confidence[order] - correct[order]) / len(order)
    assert kolmogorov_smirnov_error(probabilities, labels) == pytest.approx(np.abs(gaps).max())


def test_ks_takes_samples_of_one_confidence_together():
    # One by one, the order right-wrong would open a gap of 0.25 that is not there.
    assert kolmogorov_smirnov_error([0.5, 0.5], [True, False]) == 0.0


def test_the_reliability_curve_holds_the_sums_behind_the_ece():
    probabilities, labels = random_predictions(5)
    for binning in ("width", "mass"):
        curve = reliability_curve(probabilities, labels, binning=binning)
        filled = curve.counts > 0
        assert np.isnan(curve.gap[~filled]).all()
        ece = np.sum(curve.mass[filled] * np.abs(curve.gap[filled]))
        assert ece == pytest.approx(expected_calibration_error(probabilities, labels, binning=binning))
        assert curve.edges[0] == 0 and curve.edges[-1] == 1
