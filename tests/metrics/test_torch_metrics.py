from __future__ import annotations

from dataclasses import astuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from densecal.metrics import METRICS, bootstrap_interval, evaluate, ood_scores, reliability_curve

torch = pytest.importorskip("torch")


def predictions(seed, samples, classes, dtype=np.float64):
    rng = np.random.default_rng(seed)
    probabilities = rng.dirichlet(np.full(classes, 0.3), size=samples)
    # Scores in steps make ties and exact corners likely; rounded down, what is left for class 0 is never negative.
    probabilities = np.floor(10 * probabilities) / 10
    probabilities[:, 0] += 1 - probabilities.sum(axis=1)
    return np.clip(probabilities, 0, 1).astype(dtype), rng.integers(0, classes, size=samples)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_metrics_run_where_the_data_lie():
    probabilities, labels = predictions(4, 5000, 6)
    on_device = torch.asarray(probabilities, device="cuda"), torch.asarray(labels, device="cuda")
    ours, theirs = evaluate(probabilities, labels).as_dict(), evaluate(*on_device).as_dict()
    assert theirs == pytest.approx(ours, rel=1e-9, abs=1e-9)
    for binning in ("width", "mass"):
        assert reliability_curve(*on_device, binning=binning).edges.device.type == "cuda"
    scores = on_device[0].max(dim=1).values
    on_cpu = ood_scores(scores.cpu().numpy(), (scores**2).cpu().numpy())
    assert astuple(ood_scores(scores, scores**2)) == pytest.approx(astuple(on_cpu), rel=1e-9)
    for name in ("ece", "ece_kde", "classwise_ece"):
        on_cpu = bootstrap_interval(name, probabilities, labels, n_resamples=5)
        assert bootstrap_interval(name, *on_device, n_resamples=5).high == pytest.approx(on_cpu.high, abs=1e-6)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 99), st.integers(1, 60), st.sampled_from([np.float32, np.float64]))
def test_tensors_and_arrays_give_the_same_row(seed, samples, dtype):
    probabilities, labels = predictions(seed, samples, 3, dtype)
    if np.abs(probabilities.sum(axis=1) - 1).max() > 1e-4:
        return
    ours = evaluate(probabilities, labels).as_dict()
    theirs = evaluate(torch.asarray(probabilities), torch.asarray(labels)).as_dict()
    for name, value in ours.items():
        assert theirs[name] == pytest.approx(value, rel=1e-9, abs=1e-9), name
        assert type(theirs[name]) in (float, int)


def test_tensors_and_arrays_give_the_same_ood_scores():
    inside, outside = (np.random.default_rng(0).integers(0, 9, size=(2, 50)) / 9).astype(np.float32)
    theirs = ood_scores(torch.asarray(inside), torch.asarray(outside))
    assert theirs.as_dict() == pytest.approx(ood_scores(inside, outside).as_dict())


@pytest.mark.parametrize("binning", ["width", "mass"])
def test_a_curve_of_tensors_is_made_of_tensors(binning):
    probabilities, labels = predictions(1, 80, 3)
    ours = reliability_curve(probabilities, labels, binning=binning)
    theirs = reliability_curve(torch.asarray(probabilities), torch.asarray(labels), binning=binning)
    for name in ("edges", "counts", "confidence", "accuracy", "gap", "mass"):
        assert isinstance(getattr(theirs, name), torch.Tensor)
        np.testing.assert_allclose(getattr(theirs, name).numpy(), getattr(ours, name), atol=1e-12)


def test_labels_may_be_an_array_beside_a_tensor():
    probabilities, labels = predictions(2, 40, 3)
    assert evaluate(torch.asarray(probabilities), labels) == evaluate(
        torch.asarray(probabilities), torch.asarray(labels)
    )


def test_a_tensor_that_requires_a_gradient_is_measured_all_the_same():
    logits = torch.randn(10, 3, requires_grad=True)
    assert evaluate(logits.softmax(1), torch.zeros(10, dtype=torch.int64)).n_samples == 10


@pytest.mark.parametrize("name", [name for name, metric in METRICS.items() if metric.needs != "in and out of domain"])
def test_intervals_of_tensors_equal_those_of_arrays(name):
    probabilities, labels = predictions(3, 60, 3)
    ours = bootstrap_interval(name, probabilities, labels, n_resamples=20)
    theirs = bootstrap_interval(name, torch.asarray(probabilities), torch.asarray(labels), n_resamples=20)
    assert (theirs.estimate, theirs.low, theirs.high) == pytest.approx((ours.estimate, ours.low, ours.high), abs=1e-6)
