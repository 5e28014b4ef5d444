from __future__ import annotations

import pickle

import numpy as np
import pytest

from densecal.arrays import softmax
from densecal.metrics import MetricState, bootstrap_interval, evaluate, reliability_curve

EXACT = (
    "n_samples",
    "accuracy",
    "mean_confidence",
    "ece",
    "ece_kde",
    "classwise_ece",
    "classwise_ece_sum",
    "brier",
    "nll",
)


def predictions(scale, dtype=np.float32, n_samples=4000, n_classes=7):
    rng = np.random.default_rng(int(scale * 10))
    logits = scale * rng.normal(size=(n_samples, n_classes)).astype(dtype)
    labels = np.where(rng.random(n_samples) < 0.7, logits.argmax(1), rng.integers(n_classes, size=n_samples))
    return softmax(logits), labels


def states(probabilities, labels, size=600):
    return [
        MetricState().update(probabilities[start : start + size], labels[start : start + size])
        for start in range(0, len(labels), size)
    ]


def merged(parts):
    total = MetricState()
    for part in parts:
        total.merge(part)
    return total


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", [0.1, 1.0, 3.0, 30.0])
def test_metrics_of_batches_are_those_in_memory(scale, dtype):
    probabilities, labels = predictions(scale, dtype)
    expected, state = evaluate(probabilities, labels), merged(states(probabilities, labels))
    found = state.compute()
    for name in EXACT:
        assert getattr(found, name) == pytest.approx(getattr(expected, name), rel=1e-9, abs=1e-12), name
    for name, bound in state.error_bounds().items():
        assert abs(getattr(found, name) - getattr(expected, name)) <= bound + 1e-12, name


def test_confidences_on_the_edges_of_bins_stay_in_their_bins():
    confidence = np.repeat(np.arange(16, dtype=np.float32) / 15, 3)
    correct = np.arange(48) % 2 == 0
    expected = reliability_curve(confidence, correct)
    found = MetricState().update(confidence, correct).reliability_curve()
    assert np.array_equal(found.counts, expected.counts)
    assert found.accuracy == pytest.approx(expected.accuracy, nan_ok=True)


def test_the_curve_of_equal_masses_has_the_bins_of_the_curve_in_memory():
    probabilities, labels = predictions(1.0)
    expected = reliability_curve(probabilities, labels, binning="mass")
    found = merged(states(probabilities, labels)).reliability_curve("mass")
    assert abs(found.counts - expected.counts).max() <= 5
    assert found.edges == pytest.approx(expected.edges, abs=2e-3)


def test_the_order_of_batches_and_merges_does_not_matter():
    parts = states(*predictions(3.0))
    one, other = merged(parts).compute().as_dict(), merged(reversed(parts)).compute().as_dict()
    assert one == pytest.approx(other, rel=1e-12)
    first, second = merged(parts[:2]), merged(parts[2:])
    assert first.merge(second).compute().as_dict() == pytest.approx(one, rel=1e-12)


def test_a_state_can_be_sent_to_another_process():
    state = merged(states(*predictions(1.0)))
    for copy in (MetricState.from_state(state.state()), pickle.loads(pickle.dumps(state))):
        assert copy.compute() == state.compute()
        copy.update([[1.0] + [0.0] * 6], [0])
    assert state.n_samples == 4000


def test_a_confidence_of_its_own_and_confidences_alone_are_evaluated_as_in_memory():
    probabilities, labels = predictions(1.0)
    own = probabilities.max(axis=1) ** 2
    expected = evaluate(probabilities, labels, confidence=own)
    found = MetricState().update(probabilities, labels, confidence=own).compute()
    assert (found.ece, found.brier) == pytest.approx((expected.ece, expected.brier))
    alone = MetricState().update(own, probabilities.argmax(1) == labels).compute()
    assert alone.ece == pytest.approx(expected.ece)
    assert (alone.brier, alone.nll, alone.classwise_ece) == (None, None, None)


def test_a_state_without_class_bins_leaves_no_half_counted_class_wise_error():
    probabilities, labels = predictions(1.0)
    state = MetricState(classwise=False).update(probabilities, labels)
    assert state.compute().classwise_ece is None
    assert MetricState().update(probabilities, labels).merge(state).compute().classwise_ece is None
    assert MetricState().merge(MetricState().update(probabilities, labels)).compute().classwise_ece is not None
    kept = MetricState().update(probabilities, labels).merge(MetricState(classwise=False))
    assert kept.compute().classwise_ece is not None


@pytest.mark.parametrize("metric", ["accuracy", "ece", "ks", "ece_mass", "brier", "nll"])
def test_intervals_are_about_those_of_the_bootstrap_of_all_samples(metric):
    probabilities, labels = predictions(3.0)
    found = merged(states(probabilities, labels)).interval(metric)
    expected = bootstrap_interval(metric, probabilities, labels)
    assert found.estimate == pytest.approx(expected.estimate, abs=1e-3)
    assert found.high - found.low == pytest.approx(expected.high - expected.low, rel=0.25)


def test_one_bin_of_equal_mass_has_no_boundary_and_so_no_error():
    state = MetricState(n_bins=1).update([0.9, 0.6], [True, False])
    assert state.error_bounds()["ece_mass"] == 0
    assert state.compute().ece_mass == pytest.approx(0.25)


@pytest.mark.parametrize("metric", ["accuracy", "mean_confidence", "ece", "ece_mass", "ks", "ece_kde"])
def test_resamples_without_samples_do_not_spoil_the_interval_of_few_samples(metric):
    interval = MetricState().update([0.9, 0.6], [True, False]).interval(metric, n_resamples=50)
    assert 0 <= interval.low <= interval.estimate <= interval.high <= 1


def test_intervals_do_not_depend_on_how_the_samples_are_split():
    probabilities, labels = predictions(3.0)
    one, many = states(probabilities, labels, 4000)[0], merged(states(probabilities, labels, 100))
    assert (one.interval("ece").low, one.interval("nll").high) == pytest.approx(
        (many.interval("ece").low, many.interval("nll").high), rel=1e-9
    )


def test_what_cannot_be_merged_or_computed_is_told():
    with pytest.raises(ValueError, match="no samples yet"):
        MetricState().compute()
    with pytest.raises(ValueError, match="same n_bins"):
        MetricState().merge(MetricState(n_bins=10))
    with pytest.raises(ValueError, match="7 and 2 classes"):
        MetricState().update(*predictions(1.0)).update([[0.5, 0.5]], [0])
    with pytest.raises(ValueError, match="not class-wise"):
        MetricState().update(*predictions(1.0)).interval("classwise_ece")


@pytest.mark.parametrize(
    ("batch", "error"), [(([0.9], [1]), TypeError), (([[0.5, 0.5]], [0]), ValueError), (([1.9], [True]), ValueError)]
)
def test_a_batch_that_is_rejected_leaves_the_state_as_it_was(batch, error):
    state = MetricState().update(*predictions(1.0))
    before = state.compute()
    with pytest.raises(error):
        state.update(*batch)
    assert state.compute() == before
