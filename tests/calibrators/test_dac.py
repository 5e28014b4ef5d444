from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import softmax
from sklearn.base import clone

import densecal
from densecal import DAC, CalibrationWarning, FeatureBank, TemperatureScaling
from densecal.calibrators.temperature import TemperedLoss


def plain_objective(weights, logits, labels, distances, loss):
    """The paper's objective, term by term."""
    probabilities = softmax(logits / (distances @ weights[:-1] + weights[-1])[:, None], axis=1)
    if loss == "nll":
        return -np.log(probabilities[np.arange(len(labels)), labels]).mean()
    return ((probabilities - np.eye(logits.shape[1])[labels]) ** 2).sum(axis=1).mean()


@pytest.mark.parametrize("loss", ["brier", "nll"])
def test_the_fit_reaches_what_scipy_reaches_on_the_plain_objective(overconfident, loss):
    logits, labels, distances = overconfident
    dac = DAC(loss=loss).fit(logits, labels, distances=distances)
    arguments = (logits, labels, distances, loss)
    bounds = [(0, None), (0, None), (1e-3, None)]
    reference = minimize(plain_objective, [0.1, 0.1, 1.0], arguments, "L-BFGS-B", bounds=bounds)
    assert dac.loss_ <= reference.fun + 1e-7
    assert dac.loss_ == pytest.approx(plain_objective([*dac.weights_, dac.bias_], *arguments), rel=1e-6)
    np.testing.assert_allclose([*dac.weights_, dac.bias_], reference.x, atol=0.03)


def test_the_weights_that_made_the_data_are_found_again(overconfident):
    logits, labels, distances = overconfident
    dac = DAC(loss="nll").fit(logits, labels, distances=distances)
    np.testing.assert_allclose([*dac.weights_, dac.bias_], [3, 0, 0.5], atol=0.25)
    assert dac.layer_importance_["layer 0"] > 0.95
    assert dac.converged_


@pytest.mark.parametrize("loss", ["brier", "nll"])
def test_the_analytic_derivatives_agree_with_finite_differences(overconfident, loss):
    logits, labels, _ = overconfident
    tempered = TemperedLoss(logits[:50], labels[:50], loss)
    inverse, h = np.linspace(0.2, 1.5, 50), 1e-5
    _, slope, curvature = tempered.with_curvature(inverse)
    np.testing.assert_allclose(slope, (tempered(inverse + h)[0] - tempered(inverse - h)[0]) / (2 * h), atol=1e-6)
    np.testing.assert_allclose(curvature, (tempered(inverse + h)[1] - tempered(inverse - h)[1]) / (2 * h), atol=1e-5)


@pytest.mark.parametrize("loss", ["brier", "nll"])
def test_dac_without_layers_equals_temperature_scaling(overconfident, loss):
    logits, labels, distances = overconfident
    dac = DAC(loss=loss).fit(logits, labels, distances=distances[:, :0])
    ts = TemperatureScaling(loss=loss).fit(logits, labels)
    assert dac.bias_ == pytest.approx(ts.temperature_)
    np.testing.assert_allclose(dac.predict_proba(logits, distances=distances[:, :0]), ts.predict_proba(logits))


def test_useless_distances_give_temperature_scaling_and_a_warning_that_says_what_to_do(overconfident):
    logits, labels, distances = overconfident
    backwards = 2 - distances[:, :1]
    with pytest.warns(CalibrationWarning, match=r"does not use the distances.*shifted="):
        dac = DAC().fit(logits, labels, distances=backwards)
    assert dac.weights_[0] == pytest.approx(0, abs=1e-3)
    assert dac.loss_ <= dac.temperature_scaling_loss_ <= dac.uncalibrated_loss_


def test_a_temperature_below_one_is_found_for_an_underconfident_classifier(overconfident):
    logits, labels, distances = overconfident
    dac = DAC().fit(logits / 20, labels, distances=distances)
    assert dac.temperatures(distances=distances).max() < 1


def test_the_temperature_stays_positive_for_a_query_nearer_than_anything_seen(overconfident):
    logits, labels, distances = overconfident
    for shift in (0.0, 5.0):
        dac = DAC().fit(logits, labels, distances=distances + shift)
        assert dac.temperatures(distances=np.zeros((1, 2)))[0] > 0


def test_the_temperature_grows_with_every_distance(overconfident):
    logits, labels, distances = overconfident
    dac = DAC().fit(logits, labels, distances=distances)
    for layer in range(2):
        step = np.zeros(2)
        step[layer] = 0.5
        assert (dac.temperatures(distances=distances + step) >= dac.temperatures(distances=distances)).all()


def test_features_and_a_bank_give_the_same_fit_as_their_distances(overconfident):
    logits, labels, _ = overconfident
    rng = np.random.default_rng(0)
    bank = FeatureBank({"a": rng.normal(size=(200, 4)), "b": rng.normal(size=(200, 3))}, k=5)
    features = {"a": rng.normal(size=(3000, 4)), "b": rng.normal(size=(3000, 3))}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        by_features = DAC(bank).fit(logits, labels, features=features)
        by_distances = DAC().fit(logits, labels, distances=bank.distances(features))
    np.testing.assert_allclose(by_features.weights_, by_distances.weights_)
    assert by_features.layers_ == ["a", "b"]


def test_the_published_codes_scores_are_first_neighbours_squared():
    rng = np.random.default_rng(0)
    bank = FeatureBank({"a": rng.normal(size=(200, 4))}, k=5)
    features = {"a": rng.normal(size=(50, 4))}
    logits, labels = rng.normal(size=(50, 3)), rng.integers(0, 3, 50)
    published = DAC(bank, scores="published_code").fit(logits, labels, features=features)
    by_hand = DAC().fit(logits, labels, distances=bank.distances(features, k=1) ** 2)
    np.testing.assert_allclose(
        published.predict_proba(logits, features=features),
        by_hand.predict_proba(logits, distances=bank.distances(features, k=1) ** 2),
    )


def test_a_fit_does_not_depend_on_the_order_of_the_samples(overconfident):
    logits, labels, distances = overconfident
    order = np.random.default_rng(0).permutation(len(labels))
    first = DAC().fit(logits, labels, distances=distances)
    second = DAC().fit(logits[order], labels[order], distances=distances[order])
    np.testing.assert_allclose(first.weights_, second.weights_, atol=1e-3)
    assert first.loss_ == pytest.approx(second.loss_, rel=1e-6)


def test_torch_tensors_give_the_same_fit_and_tensors_back(overconfident):
    torch = pytest.importorskip("torch")
    logits, labels, distances = overconfident
    numpy_fit = DAC().fit(logits, labels, distances=distances)
    tensors = [torch.from_numpy(array) for array in (logits, labels, distances)]
    torch_fit = DAC().fit(tensors[0], tensors[1], distances=tensors[2])
    np.testing.assert_allclose(torch_fit.weights_, numpy_fit.weights_, atol=1e-5)
    probabilities = torch_fit.predict_proba(tensors[0], distances=tensors[2])
    assert isinstance(probabilities, torch.Tensor)
    np.testing.assert_allclose(probabilities.numpy(), numpy_fit.predict_proba(logits, distances=distances), atol=1e-6)


def test_float32_in_gives_float32_out(overconfident):
    logits, labels, distances = overconfident
    dac = DAC().fit(logits.astype(np.float32), labels, distances=distances)
    assert dac.predict_proba(logits.astype(np.float32), distances=distances).dtype == np.float32


def test_chains_feed_the_rescaled_logits_to_the_next_method(overconfident):
    logits, labels, distances = overconfident
    chain = densecal.Chain(DAC(), TemperatureScaling(loss="nll")).fit(logits, labels, distances=distances)
    rescaled = DAC().fit(logits, labels, distances=distances).transform(logits, distances=distances)
    second = TemperatureScaling(loss="nll").fit(rescaled, labels)
    np.testing.assert_allclose(chain.predict_proba(logits, distances=distances), second.predict_proba(rescaled))


def test_chains_clone_and_set_parameters_as_scikit_learn_expects():
    chain = densecal.Chain(DAC(loss="nll"), TemperatureScaling())
    copy = clone(chain)
    assert copy.get_params()["dac__loss"] == "nll"
    copy.set_params(ts__loss="brier")
    assert copy.stages[1].loss == "brier"
    assert chain.stages[1].loss == "nll"
    with pytest.raises(ValueError, match="is not a parameter of this chain"):
        copy.set_params(spline__knots=3)


def test_cloning_a_dac_shares_its_bank():
    bank = FeatureBank({"a": np.eye(4)}, k=1)
    assert clone(DAC(bank)).bank is bank


def test_one_sample_can_be_calibrated_after_the_fit(overconfident):
    logits, labels, distances = overconfident
    dac = DAC().fit(logits, labels, distances=distances)
    one = dac.predict_proba(logits[:1], distances=distances[:1])
    np.testing.assert_allclose(one, dac.predict_proba(logits, distances=distances)[:1])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "pass features= .* or distances="),
        ({"distances": np.ones((3, 2))}, r"shape \(3000, n_layers\)"),
        ({"distances": -np.ones((3000, 2))}, "must not be negative"),
        ({"distances": np.full((3000, 2), np.nan)}, "NaN or infinite"),
        ({"features": {"a": np.ones((3000, 2))}}, "with DAC.bank="),
    ],
)
def test_missing_or_bad_distances_are_explained(overconfident, arguments, message):
    logits, labels, _ = overconfident
    with pytest.raises(ValueError, match=message):
        DAC().fit(logits, labels, **arguments)


def test_other_layers_than_the_fitted_ones_are_refused(overconfident):
    logits, labels, distances = overconfident
    dac = DAC().fit(logits, labels, distances=distances)
    with pytest.raises(ValueError, match="3 layers, but this DAC was fitted on 2"):
        dac.predict_proba(logits, distances=np.ones((3000, 3)))
    with pytest.raises(ValueError, match=r"shape \(3000, n_layers\), got \(10, 2\)"):
        dac.predict_proba(logits, distances=distances[:10])


def test_an_unfitted_dac_says_so():
    with pytest.raises(ValueError, match="not fitted"):
        DAC().predict_proba(np.ones((2, 3)), distances=np.ones((2, 1)))


def test_unknown_options_are_refused(overconfident):
    logits, labels, distances = overconfident
    with pytest.raises(ValueError, match="loss must be one of"):
        DAC(loss="mse").fit(logits, labels, distances=distances)
    with pytest.raises(ValueError, match="scores must be one of"):
        DAC(scores="code").fit(logits, labels, distances=distances)


def mostly_right(near_share):
    """Two classes; every input near the training data is right, one in three of the far ones is wrong."""
    near = np.arange(200) < 200 * near_share
    logits = 2 * np.eye(2)[np.arange(200) % 2]
    labels = np.where(near | (np.arange(200) % 3 > 0), logits.argmax(axis=1), logits.argmin(axis=1))
    return logits, labels, np.where(near, 0.0, 0.5)[:, None]


def test_a_fit_that_makes_some_inputs_certain_says_so():
    logits, labels, distances = mostly_right(0.3)
    with pytest.warns(CalibrationWarning, match=r"30% of the validation inputs less than a quarter.*'layer 0'"):
        DAC().fit(logits, labels, distances=distances)


def test_a_fit_that_would_make_most_inputs_certain_falls_back_on_one_temperature():
    logits, labels, distances = mostly_right(0.8)
    with pytest.warns(CalibrationWarning, match="acts as temperature scaling"):
        dac = DAC().fit(logits, labels, distances=distances)
    assert dac.bias_ == pytest.approx(TemperatureScaling(loss="brier").fit(logits, labels).temperature_, rel=1e-6)
