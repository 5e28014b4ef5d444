"""What every calibrator promises, checked on every method of the registry and on DAC before each of them."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import softmax
from sklearn.base import clone

import densecal

NAMES = [*densecal.METHODS, *(f"dac+{name}" for name in densecal.METHODS if name != "dac")]
PRESERVING = [name for name in NAMES if densecal.make_calibrator(name).accuracy_preserving]
FEW = settings(max_examples=6, deadline=None, derandomize=True)
OVERCONFIDENT = [
    "lenet-5-cifar-10",
    "wideresnet-16-4-cifar-10",
    "densenet-bc-100-cifar-100",
    "wideresnet-16-4-cifar-100",
]
every_method = pytest.mark.parametrize("name", NAMES)
# Two fits of DAC that differ in the last digit hand on logits that do, and a second fit may answer to them.
every_single_method = pytest.mark.parametrize("name", list(densecal.METHODS))

pytestmark = pytest.mark.filterwarnings("ignore::densecal.errors.CalibrationWarning")


@st.composite
def problems(draw, dtype=None, max_samples=40):
    """Logits on a lattice, so that a constant added to a row is exact and ties occur; labels; distances."""
    samples = draw(st.integers(2, max_samples))
    classes = draw(st.sampled_from([2, 3, 5, 12]))
    dtype = dtype or draw(st.sampled_from([np.float32, np.float64]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    logits = rng.integers(-40, 41, size=(samples, classes)) / 8
    labels = np.where(rng.random(samples) < 0.6, logits.argmax(axis=1), rng.integers(0, classes, samples))
    return logits.astype(dtype), labels, rng.uniform(0.1, 1.0, size=(samples, 2)).astype(dtype)


def fitted(name, logits, labels, distances):
    return densecal.make_calibrator(name).fit(logits, labels, distances=distances)


@every_method
@FEW
@given(problems())
def test_rows_are_probabilities_of_the_type_they_came_in(name, problem):
    logits, labels, distances = problem
    calibrator = fitted(name, logits, labels, distances)
    calibrated = calibrator.predict_proba(logits, distances=distances)
    assert calibrated.dtype == logits.dtype
    assert calibrated.shape == logits.shape
    assert (calibrated >= 0).all()
    np.testing.assert_allclose(calibrated.sum(axis=1), 1, rtol=1e-5)
    confidence = calibrator.confidence(logits, distances=distances)
    assert confidence.dtype == logits.dtype
    assert confidence.shape == labels.shape
    assert ((confidence >= 0) & (confidence <= 1 + 1e-6)).all()


@pytest.mark.parametrize("name", PRESERVING)
@FEW
@given(problems())
def test_an_accuracy_preserving_method_keeps_every_predicted_class(name, problem):
    logits, labels, distances = problem
    calibrator = fitted(name, logits, labels, distances)
    rng = np.random.default_rng(0)
    strange = rng.normal(scale=50, size=logits.shape).astype(logits.dtype)
    nearly_tied = logits.copy()
    nearly_tied[:, -1] = np.nextafter(logits.max(axis=1), logits.dtype.type(np.inf))
    for rows in (logits, strange, nearly_tied):
        calibrated = calibrator.predict_proba(rows, distances=distances)
        np.testing.assert_array_equal(calibrated.argmax(axis=1), rows.argmax(axis=1))


@every_single_method
@FEW
@given(problems())
def test_a_constant_added_to_a_row_changes_nothing(name, problem):
    logits, labels, distances = problem
    shifted = logits + np.arange(-3, len(logits) - 3, dtype=logits.dtype)[:, None]
    expected = fitted(name, logits, labels, distances).predict_proba(logits, distances=distances)
    again = fitted(name, shifted, labels, distances).predict_proba(logits, distances=distances)
    np.testing.assert_allclose(again, expected, atol=1e-5)
    applied = fitted(name, logits, labels, distances).predict_proba(shifted, distances=distances)
    np.testing.assert_allclose(applied, expected, atol=1e-5)


@every_single_method
@FEW
@given(problems(), st.randoms(use_true_random=False))
def test_the_order_of_the_samples_changes_nothing(name, problem, random):
    logits, labels, distances = problem
    order = random.sample(range(len(labels)), len(labels))
    expected = fitted(name, logits, labels, distances).predict_proba(logits, distances=distances)
    shuffled = fitted(name, logits[order], labels[order], distances[order])
    np.testing.assert_allclose(shuffled.predict_proba(logits, distances=distances), expected, atol=1e-5)


@every_single_method
@FEW
@given(problems())
def test_numpy_and_torch_give_the_same(name, problem):
    torch = pytest.importorskip("torch")
    logits, labels, distances = problem
    expected = fitted(name, logits, labels, distances)
    tensors = [torch.from_numpy(part) for part in (logits, labels, distances)]
    ours = fitted(name, *tensors)
    calibrated = ours.predict_proba(tensors[0], distances=tensors[2])
    assert calibrated.dtype == tensors[0].dtype
    np.testing.assert_allclose(calibrated.numpy(), expected.predict_proba(logits, distances=distances), atol=1e-5)
    np.testing.assert_allclose(
        ours.confidence(tensors[0], distances=tensors[2]).numpy(),
        expected.confidence(logits, distances=distances),
        atol=1e-5,
    )


@pytest.mark.parametrize("name", [name for name in NAMES if "+" in name])
def test_a_chain_does_not_depend_on_offsets_order_or_the_kind_of_array(name, overconfident):
    # The second fit sees the first one's rounding, so a chain agrees less closely than a method alone.
    torch = pytest.importorskip("torch")
    logits, labels, distances = overconfident
    expected = fitted(name, logits, labels, distances).predict_proba(logits, distances=distances)
    moved = logits + np.linspace(-5, 5, len(logits))[:, None]
    again = fitted(name, moved, labels, distances).predict_proba(logits, distances=distances)
    np.testing.assert_allclose(again, expected, atol=2e-3)
    order = np.random.default_rng(0).permutation(len(labels))
    shuffled = fitted(name, logits[order], labels[order], distances[order])
    np.testing.assert_allclose(shuffled.predict_proba(logits, distances=distances), expected, atol=2e-3)
    tensors = [torch.from_numpy(array) for array in (logits, labels, distances)]
    of_tensors = fitted(name, *tensors).predict_proba(tensors[0], distances=tensors[2])
    np.testing.assert_allclose(of_tensors.numpy(), expected, atol=2e-3)


@every_method
def test_one_fit_gives_arrays_and_tensors_the_same(name, overconfident):
    torch = pytest.importorskip("torch")
    logits, labels, distances = (part[:300] for part in overconfident)
    calibrator = fitted(name, logits, labels, distances)
    for answer in (calibrator.predict_proba, calibrator.confidence):
        from_tensors = answer(torch.from_numpy(logits), distances=torch.from_numpy(distances))
        assert isinstance(from_tensors, torch.Tensor)
        np.testing.assert_allclose(from_tensors.numpy(), answer(logits, distances=distances), atol=1e-9)


@every_method
@FEW
@given(problems())
def test_a_fit_is_never_worse_than_the_uncalibrated_logits(name, problem):
    logits, labels, distances = problem
    calibrator = fitted(name, logits, labels, distances)
    last = calibrator.stages[-1] if "+" in name else calibrator
    if last.short_name == "spl":  # it minimises the cumulative error of its top-1 score
        return
    losses = {
        "brier": lambda p: ((p - np.eye(p.shape[1])[labels]) ** 2).sum(axis=1).mean(),
        "nll": lambda p: -np.log(np.maximum(p[np.arange(len(labels)), labels], 1e-20)).mean(),
    }
    if last.fit_loss == "nll" and "+" in name:  # DAC minimises the squared error before it
        return
    loss = losses[last.fit_loss]
    calibrated = calibrator.predict_proba(logits, distances=distances)
    assert loss(calibrated.astype(np.float64)) <= loss(softmax(logits.astype(np.float64), axis=1)) + 1e-5


@every_method
def test_a_fit_twice_gives_the_same_numbers(name, overconfident):
    logits, labels, distances = (part[:300] for part in overconfident)
    first, second = (fitted(name, logits, labels, distances) for _ in range(2))
    np.testing.assert_array_equal(
        first.predict_proba(logits, distances=distances), second.predict_proba(logits, distances=distances)
    )


@every_method
def test_the_estimator_follows_scikit_learn(name, overconfident):
    logits, labels, distances = (part[:300] for part in overconfident)
    calibrator = densecal.make_calibrator(name)
    before = calibrator.get_params()
    assert calibrator.fit(logits, labels, distances=distances) is calibrator
    copy = clone(calibrator)
    assert not hasattr(copy, "n_classes_")
    assert repr(copy) == repr(densecal.make_calibrator(name))
    simple = {key: value for key, value in before.items() if not hasattr(value, "fit")}
    assert copy.set_params(**simple).get_params().keys() == before.keys()


@every_method
def test_a_saved_calibrator_comes_back_with_the_same_answers(name, overconfident, tmp_path):
    logits, labels, distances = (part[:300] for part in overconfident)
    calibrator = fitted(name, logits, labels, distances)
    calibrator.save(tmp_path / "calibrator.densecal")
    loaded = densecal.load(tmp_path / "calibrator.densecal")
    for answer in ("predict_proba", "confidence"):
        np.testing.assert_array_equal(
            getattr(loaded, answer)(logits, distances=distances),
            getattr(calibrator, answer)(logits, distances=distances),
        )


@every_method
def test_a_single_sample_gives_a_valid_answer(name):
    logits, distances = np.array([[1.0, 3.0, 0.5]]), np.array([[0.3, 0.4]])
    for label in (0, 1):
        calibrated = fitted(name, logits, [label], distances).predict_proba(logits, distances=distances)
        assert np.isfinite(calibrated).all()
        assert calibrated.sum() == pytest.approx(1)


@every_method
def test_a_perfect_classifier_gives_a_valid_answer(name):
    labels = np.arange(60) % 3
    rng = np.random.default_rng(0)
    logits, distances = np.eye(3)[labels] * 8 + rng.normal(size=(60, 3)), rng.uniform(0.1, 1, size=(60, 2))
    calibrated = fitted(name, logits, labels, distances).predict_proba(logits, distances=distances)
    assert np.isfinite(calibrated).all()
    assert (calibrated.argmax(axis=1) == labels).all()
    assert calibrated.max(axis=1).min() > 0.9


@every_method
def test_a_class_missing_from_the_labels_gives_a_valid_answer(name, overconfident):
    logits, labels, distances = (part[:300] for part in overconfident)
    seen = labels != 4
    calibrator = fitted(name, logits[seen], labels[seen], distances[seen])
    calibrated = calibrator.predict_proba(logits, distances=distances)
    assert np.isfinite(calibrated).all()
    np.testing.assert_allclose(calibrated.sum(axis=1), 1, rtol=1e-6)


@every_method
def test_the_logits_themselves_are_left_alone(name, overconfident):
    logits, labels, distances = (part[:100].copy() for part in overconfident)
    before = [part.copy() for part in (logits, labels, distances)]
    fitted(name, logits, labels, distances).predict_proba(logits, distances=distances)
    for part, untouched in zip((logits, labels, distances), before, strict=True):
        np.testing.assert_array_equal(part, untouched)


@pytest.mark.parametrize("name", list(densecal.METHODS))
def test_every_method_names_its_paper(name):
    method = densecal.METHODS[name]
    assert method.short_name == name
    assert method.full_name
    assert isinstance(method.accuracy_preserving, bool)
    assert 1990 < method.citation.year < 2030
    assert method.__doc__ is not None
    assert ">>>" in method.__doc__


@pytest.mark.parametrize("network", OVERCONFIDENT)
@pytest.mark.parametrize("name", [name for name in densecal.METHODS if name != "dac"])
def test_half_of_a_real_test_set_makes_the_other_half_more_honest(name, network, real_networks):
    logits, labels = real_networks[network]
    half = len(labels) // 2
    with warnings.catch_warnings():
        warnings.simplefilter("error", densecal.CalibrationWarning)
        calibrator = densecal.make_calibrator(name).fit(logits[:half], labels[:half])
    fresh, truth = logits[half:], labels[half:]
    correct = fresh.argmax(axis=1) == truth
    correct_after = calibrator.predict_proba(fresh).argmax(axis=1) == truth
    assert correct_after.mean() > correct.mean() - 0.01
    error = densecal.metrics.expected_calibration_error
    assert error(calibrator.confidence(fresh), correct_after) < error(softmax(fresh, axis=1).max(axis=1), correct)
