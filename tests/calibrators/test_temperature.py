from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize, minimize_scalar
from scipy.special import softmax
from sklearn.exceptions import NotFittedError

import densecal
from densecal import CalibrationWarning, EnsembleTemperatureScaling, TemperatureScaling


def brier(probabilities, labels):
    return ((probabilities - np.eye(probabilities.shape[1])[labels]) ** 2).sum(axis=1).mean()


def test_the_temperature_is_the_one_scikit_learn_finds(overconfident):
    from sklearn.calibration import _TemperatureScaling

    logits, labels, _ = overconfident
    reference = _TemperatureScaling().fit(logits, labels)
    ours = TemperatureScaling(loss="nll").fit(logits, labels)
    assert ours.temperature_ == pytest.approx(1 / reference.beta_, rel=1e-3)


def test_by_default_an_over_confident_classifier_is_not_sharpened():
    from sklearn.datasets import make_classification
    from sklearn.naive_bayes import GaussianNB

    inputs, labels = make_classification(
        3000, 40, n_informative=2, n_redundant=38, n_clusters_per_class=1, class_sep=2, random_state=3
    )
    logits = GaussianNB().fit(inputs[:1000], labels[:1000]).predict_joint_log_proba(inputs[1000:])
    val, test = (logits[:1000], labels[1000:2000]), (logits[1000:], labels[2000:])
    squared = TemperatureScaling(loss="brier").fit(*val)
    for calibrator in (TemperatureScaling(), EnsembleTemperatureScaling()):
        calibrator.fit(*val)
        assert calibrator.loss == "nll"
        assert calibrator.temperature_ > 2 > squared.temperature_
    found, plain = (
        densecal.metrics.negative_log_likelihood(one, test[1])
        for one in (TemperatureScaling().fit(*val).predict_proba(test[0]), softmax(test[0], axis=1))
    )
    assert found < plain


def test_a_loss_by_name_is_that_of_every_stage_that_has_one():
    chain = densecal.make_calibrator("dac+ets", loss="nll")
    assert [stage.loss for stage in chain.stages] == ["nll", "nll"]
    assert [stage.loss for stage in densecal.make_calibrator("dac+ts").stages] == ["brier", "nll"]
    assert densecal.make_calibrator("dac+irm", loss="nll").stages[0].loss == "nll"
    with pytest.raises(ValueError, match="'spl' has no choice of loss"):
        densecal.make_calibrator("spl", loss="nll")
    with pytest.raises(ValueError, match="loss must be one of"):
        densecal.make_calibrator("ts", loss="mse")


def test_the_squared_errors_temperature_is_the_one_scipy_finds(overconfident):
    logits, labels, _ = overconfident
    reference = minimize_scalar(
        lambda log_t: brier(softmax(logits / np.exp(log_t), axis=1), labels), bounds=(-3, 3), method="bounded"
    )
    found = TemperatureScaling(loss="brier").fit(logits, labels).temperature_
    assert np.log(found) == pytest.approx(reference.x, abs=1e-3)


@pytest.mark.parametrize("factor", [1e-3, 1e-2, 1.0, 1e2, 1e3])
def test_the_temperature_follows_the_scale_of_the_logits(overconfident, factor):
    logits, labels, _ = overconfident
    plain = TemperatureScaling().fit(logits, labels).temperature_
    assert TemperatureScaling().fit(logits * factor, labels).temperature_ == pytest.approx(plain * factor, rel=1e-3)


@pytest.mark.parametrize("loss", ["nll", "brier"])
@pytest.mark.parametrize("samples", [40, 4000])
def test_a_perfect_validation_set_gives_the_confidence_that_it_supports_and_says_so(loss, samples):
    logits = np.eye(4)[np.arange(samples) % 4] * 0.5
    with pytest.warns(CalibrationWarning, match="Every validation sample is classified correctly"):
        calibrator = TemperatureScaling(loss=loss).fit(logits, np.arange(samples) % 4)
    confidences = calibrator.predict_proba(logits).max(axis=1)
    np.testing.assert_allclose(confidences, (samples + 1) / (samples + 2), atol=1e-5)


@pytest.mark.filterwarnings("ignore:Every validation sample is classified correctly")
@pytest.mark.parametrize("method", ["ets", "pts", "dia", "vs", "dir"])
def test_methods_with_more_parameters_claim_no_more_than_a_perfect_validation_set_supports(method):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 5, 2200)
    logits = rng.normal(size=(2200, 5)) + 2 * np.eye(5)[labels]
    right = np.flatnonzero(logits.argmax(axis=1) == labels)[:200]
    expected = TemperatureScaling().fit(logits[right], labels[right]).confidence(logits)
    found = densecal.make_calibrator(method).fit(logits[right], labels[right]).confidence(logits)
    assert expected.mean() - 0.02 < found.mean() < expected.mean() + 1e-3


@pytest.mark.filterwarnings("ignore:The validation set has so few errors")
@pytest.mark.parametrize("method", ["ets", "pts", "dia", "vs", "dir"])
def test_methods_with_more_parameters_are_not_certain_after_a_few_mistakes(method):
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 5, 20_000)
    logits = rng.normal(size=(20_000, 5)) + 2 * np.eye(5)[labels]
    is_right = logits.argmax(axis=1) == labels
    val = np.append(np.flatnonzero(is_right)[:995], np.flatnonzero(~is_right)[:5])
    expected = TemperatureScaling().fit(logits[val], labels[val]).confidence(logits)
    found = densecal.make_calibrator(method).fit(logits[val], labels[val]).confidence(logits)
    assert found.mean() < expected.mean() + 0.01


@pytest.mark.filterwarnings("ignore:(The validation set has so few errors|Every validation sample)")
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("mistakes", [0, 1, 2])
def test_pts_is_no_surer_than_temperature_scaling_after_few_mistakes(mistakes, seed):
    rng = np.random.default_rng(seed)
    labels, logits = rng.integers(0, 10, 1000), rng.normal(size=(1000, 10))
    logits[np.arange(1000), labels] = logits.max(axis=1) + rng.exponential(3, 1000) + 0.3
    labels[:mistakes] = (labels[:mistakes] + 1) % 10
    doubt = [1 - densecal.make_calibrator(name).fit(logits, labels).confidence(logits).mean() for name in ("ts", "pts")]
    assert doubt[1] > 0.5 * doubt[0]


def test_equal_largest_logits_are_no_mistakes_and_stop_at_the_bound():
    logits = np.array([[2.0, 2.0, 0.0], [3.0, 0.0, 0.0]] * 20)
    with pytest.warns(CalibrationWarning, match="classified correctly, but some have two equal largest logits"):
        assert TemperatureScaling().fit(logits, np.zeros(40, int)).temperature_ > 0


def test_always_wrong_logits_stop_at_the_other_bound():
    logits = np.eye(2)[np.arange(40) % 2] * 3
    with pytest.warns(CalibrationWarning, match="largest useful value"):
        calibrator = TemperatureScaling().fit(logits, (np.arange(40) + 1) % 2)
    np.testing.assert_allclose(calibrator.predict_proba(logits), 0.5, atol=1e-3)


def test_a_class_missing_from_the_validation_set_is_no_obstacle(overconfident):
    logits, labels, _ = overconfident
    known = labels != 2
    probabilities = TemperatureScaling().fit(logits[known], labels[known]).predict_proba(logits)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)


def test_one_hot_labels_give_the_same_temperature(overconfident):
    logits, labels, _ = overconfident
    one_hot = np.eye(5, dtype=int)[labels]
    expected = TemperatureScaling().fit(logits, labels).temperature_
    assert TemperatureScaling().fit(logits, one_hot).temperature_ == expected


def test_the_ensembles_mixture_is_the_best_on_the_simplex(overconfident):
    logits, labels, _ = overconfident
    labels = np.where(np.random.default_rng(1).random(len(labels)) < 0.2, 0, labels)
    ets = EnsembleTemperatureScaling().fit(logits, labels)
    parts = [softmax(logits / ets.temperature_, axis=1), softmax(logits, axis=1), np.full(logits.shape, 1 / 5)]

    def objective(weights):
        return brier(sum(w * part for w, part in zip(weights, parts, strict=True)), labels)

    reference = minimize(
        objective, np.ones(3) / 3, bounds=[(0, 1)] * 3, constraints={"type": "eq", "fun": lambda w: w.sum() - 1}
    )
    assert ets.mixture_.min() >= 0
    assert ets.mixture_.sum() == pytest.approx(1)
    assert objective(ets.mixture_) <= reference.fun + 1e-7


def test_the_ensemble_is_never_worse_than_its_temperature_alone(overconfident):
    logits, labels, _ = overconfident
    ets = EnsembleTemperatureScaling().fit(logits, labels)
    ts = TemperatureScaling().fit(logits, labels)
    assert brier(ets.predict_proba(logits), labels) <= brier(ts.predict_proba(logits), labels) + 1e-9


@pytest.mark.parametrize(
    ("logits", "labels", "error", "message"),
    [
        ([[np.nan, 1.0]], [0], ValueError, "logits must be finite: 1 values are NaN or infinite, first in row 0"),
        ([[np.inf, 1.0]], [0], ValueError, "must be finite"),
        ([[0.4, 0.6], [0.1, 0.9]], [0, 1], ValueError, "logits look like probabilities"),
        ([[1.0, 2.0]], [2], ValueError, "labels must lie in 0 ... 1"),
        ([[1.0, 2.0]], [-1], ValueError, "remove those rows"),
        ([[1.0, 2.0]], [0.5], TypeError, "labels must be integers"),
        ([[1.0, 2.0]], [0, 1], ValueError, r"labels must have shape \(1,\)"),
        ([1.0, 2.0], [0], ValueError, r"shape \(n_samples, n_classes\)"),
        (np.empty((0, 3)), [], ValueError, "at least 1 sample"),
        ([["a", "b"]], [0], TypeError, "must be numbers"),
        ([[1.0, 2.0]], [[1, 1]], ValueError, "one-hot"),
    ],
)
def test_bad_input_is_named_and_explained(logits, labels, error, message):
    with pytest.raises(error, match=message):
        TemperatureScaling().fit(np.asarray(logits), np.asarray(labels))


def test_another_number_of_classes_than_fitted_is_refused(overconfident):
    logits, labels, _ = overconfident
    calibrator = TemperatureScaling().fit(logits, labels)
    with pytest.raises(ValueError, match="3 classes, but this TemperatureScaling was fitted on 5"):
        calibrator.predict_proba(np.ones((2, 3)))


def test_an_unfitted_calibrator_says_so():
    with pytest.raises(NotFittedError, match="not fitted yet"):
        TemperatureScaling().predict_proba(np.ones((2, 3)))


def test_importing_densecal_is_quick_and_leaves_torch_alone():
    import subprocess
    import sys

    code = (
        "import sys, time; t = time.perf_counter(); import densecal; seconds = time.perf_counter() - t;"
        "densecal.TemperatureScaling; print(seconds, 'torch' in sys.modules)"
    )
    seconds, has_torch = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    assert float(seconds) < 0.7
    assert has_torch == "False"


def test_every_public_name_exists_and_is_documented():
    for name in densecal.__all__:
        assert getattr(densecal, name).__doc__, name


def test_a_few_confident_mistakes_do_not_end_in_full_certainty():
    rng = np.random.default_rng(0)
    logits = np.column_stack([rng.uniform(0.5, 3, 150), np.zeros(150)])
    logits[0] = [9.0, 0.0]
    labels = np.zeros(150, int)
    labels[0] = 1
    with pytest.warns(CalibrationWarning, match=r"so few errors \(0\.67%\).*by likelihood instead and is"):
        scaling = TemperatureScaling(loss="brier").fit(logits, labels)
    assert np.median(scaling.predict_proba(logits).max(axis=1)) < 0.99
