"""The contract of every calibrator: one Outputs, one search, stages, state."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.base import clone

import densecal
import densecal.io.artefacts
from densecal import DAC, METHODS, Chain, Distances, FeatureBank, Outputs, TemperatureScaling, make_calibrator


@pytest.fixture
def searches(monkeypatch):
    """The number of samples of every search."""
    seen = []
    search = FeatureBank.distances

    def counted(self, features, **options):
        seen.append(len(next(iter(features.values()))))
        return search(self, features, **options)

    monkeypatch.setattr(FeatureBank, "distances", counted)
    return seen


@pytest.fixture
def bank(drifting):
    return FeatureBank(drifting["train"].features, k=10)


def test_a_chain_searches_each_data_set_once_in_fit_and_in_predict(drifting, bank, searches):
    val, test, shifted = drifting["val"], drifting["test-0"], drifting["test-2"]
    chain = make_calibrator("dac+ets", bank=bank)
    chain.fit(val.logits, val.labels, features=val.features)
    assert searches == [500]
    chain.fit(val, shifted=shifted)
    assert searches == [500, 500, 300]
    chain.predict_proba(test)
    chain.confidence(test)
    assert searches[3:] == [300, 300]


def test_measured_outputs_are_not_searched_again(drifting, bank, searches):
    chain = make_calibrator("dac+ts", bank=bank)
    val = chain.measure(drifting["val"])
    assert (val.distances.k, val.distances.layers) == (10, ("early", "late"))
    chain.fit(val)
    measured = chain.predict_proba(val)
    chain.confidence(chain.measure(val)[:7])
    assert searches == [500]
    np.testing.assert_allclose(measured, chain.predict_proba(drifting["val"]), atol=1e-6)


@pytest.mark.parametrize("name", [*METHODS, "dac+ets"])
def test_outputs_stand_for_logits_labels_and_features(drifting, bank, name):
    val, test = drifting["val"], drifting["test-1"]
    together = make_calibrator(name, bank=bank).fit(val)
    apart = make_calibrator(name, bank=bank).fit(val.logits, val.labels, features=val.features)
    expected = apart.predict_proba(test.logits, features=test.features)
    np.testing.assert_array_equal(together.predict_proba(test), expected)
    np.testing.assert_array_equal(together.confidence(test), apart.confidence(test.logits, features=test.features))


def test_outputs_with_something_beside_them_are_refused(drifting):
    with pytest.raises(TypeError, match="Do not pass them separately"):
        TemperatureScaling().fit(drifting["val"], drifting["val"].labels)
    with pytest.raises(ValueError, match="fit needs labels"):
        TemperatureScaling().fit(drifting["val"].logits)


def test_distances_of_another_neighbour_are_refused(drifting, bank):
    val = drifting["val"]
    measured = DAC(bank, scores="published_code").measure(val)
    assert measured.distances.k == 1
    with pytest.raises(ValueError, match="distances to neighbour 1 .* measured by another calibrator"):
        DAC(bank).fit(measured)


def test_distances_of_other_samples_are_refused():
    outputs = Outputs([[2.0, 1.0]])
    with pytest.raises(ValueError, match="2 samples but logits have 1"):
        outputs.with_distances(Distances(np.ones((2, 1)), ("pool",), 1))


def test_every_calibrator_is_a_chain_of_at_least_one_stage(bank):
    single, chain = make_calibrator("ts"), make_calibrator("dac+ets", bank=bank)
    assert single.stages == (single,)
    assert [stage.short_name for stage in chain.stages] == ["dac", "ets"]
    assert single.density_stage is None
    assert chain.density_stage is chain.stages[0]


def test_setting_a_parameter_of_a_repeated_stage_keeps_both():
    chain = make_calibrator("ts+ts")
    assert set(chain.get_params(deep=False)) == {"ts", "ts2"}
    chain.set_params(ts2__loss="nll")
    assert [stage.loss for stage in chain.stages] == [TemperatureScaling().loss, "nll"]
    assert [stage.loss for stage in clone(chain).stages] == [TemperatureScaling().loss, "nll"]
    chain.set_params(ts=DAC())
    assert [stage.short_name for stage in chain.stages] == ["dac", "ts"]


def test_the_name_of_a_shift_fitted_method_makes_one(drifting, bank):
    val, shifted = drifting["val"], drifting["test-3"]
    fitted = make_calibrator("dac+ets", bank=bank).fit(val, shifted=shifted)
    assert fitted.method_name == "dac-shift+ets"
    again = make_calibrator(fitted.method_name, bank=bank)
    with pytest.raises(ValueError, match="'dac-shift' is fitted on shifted data"):
        again.fit(val)
    assert again.fit(val, shifted=shifted).method_name == "dac-shift+ets"
    assert make_calibrator("dac+ets", bank=bank).fit(val).method_name == "dac+ets"


@pytest.mark.parametrize("name", [*METHODS, "dac+spl"])
def test_a_calibrator_is_what_its_state_says(drifting, bank, name):
    val, test = drifting["val"], drifting["test-2"]
    fitted = make_calibrator(name, bank=bank).fit(val)
    state = fitted.state()
    assert [stage.method for stage in state.stages] == name.split("+")
    restored = type(fitted).from_state(state)
    np.testing.assert_allclose(restored.predict_proba(test), fitted.predict_proba(test), atol=1e-4)
    for stage, restored_stage in zip(fitted.stages, restored.stages, strict=True):
        assert set(vars(stage)) == set(vars(restored_stage))


def test_every_method_answers_shifted_data_alike(drifting):
    for name in METHODS:
        if name == "dac":
            continue
        with pytest.raises(ValueError, match=f"'{name}' is not fitted on shifted data, only 'dac' is"):
            make_calibrator(name).fit(drifting["val"], shifted=drifting["test-1"])


def test_a_chain_is_made_of_calibrators():
    with pytest.raises(ValueError, match="at least one"):
        Chain()
    with pytest.raises(TypeError, match="Chain stages must be calibrators"):
        Chain("ts")


def test_distances_of_another_bank_or_in_another_order_of_layers_are_refused_and_measured_again(drifting, bank):
    val, test = drifting["val"], drifting["test-1"]
    dac = DAC(bank).fit(val)
    swapped = FeatureBank({layer: drifting["train"].features[layer] for layer in ("late", "early")}, k=10)
    other = FeatureBank({layer: array[:200] for layer, array in drifting["train"].features.items()}, k=10)
    for foreign in (swapped, other):
        measured = DAC(foreign).measure(test)
        with pytest.raises(ValueError, match="another calibrator or another bank"):
            dac.predict_proba(measured)
        np.testing.assert_array_equal(dac.predict_proba(dac.measure(measured)), dac.predict_proba(test))


def test_a_dac_without_a_bank_remembers_how_its_distances_were_measured(drifting, bank):
    val = drifting["val"]
    measured = DAC(bank).measure(val).distances
    dac = DAC().fit(val.logits, val.labels, distances=measured)
    assert dac.layers_ == ["early", "late"]
    for wrong in (Distances(measured.values, measured.layers, 1), Distances(measured.values, ("late", "early"), 10)):
        with pytest.raises(ValueError, match="another calibrator or another bank"):
            dac.predict_proba(val.logits, distances=wrong)
    with pytest.raises(ValueError, match="another calibrator or another bank"):
        DAC(scores="published_code").fit(val.logits, val.labels, distances=measured)


def test_joined_outputs_keep_distances_of_one_kind(drifting, bank):
    dac = DAC(bank)
    val, test = dac.measure(drifting["val"]), dac.measure(drifting["test-1"])
    assert len(Outputs.concatenate([val, test]).distances) == 800
    assert Outputs.concatenate([val, drifting["test-1"]]).distances is None


def test_dac_comes_first_and_once(bank):
    for stages in ((TemperatureScaling(), DAC(bank)), (DAC(bank), DAC(bank))):
        with pytest.raises(ValueError, match="DAC must be the first stage"):
            Chain(*stages)


def test_a_chain_of_chains_is_one_chain(drifting, bank, tmp_path):
    nested = Chain(Chain(DAC(bank), TemperatureScaling()), make_calibrator("ets")).fit(drifting["val"])
    assert nested.short_name == "dac+ts+ets"
    assert nested.density_stage is nested.stages[0]
    nested.save(tmp_path / "nested.densecal")


def test_parameters_of_a_chain_are_set_together_or_not_at_all():
    chain = make_calibrator("dac+ts")
    with pytest.raises(TypeError, match="Chain stages must be calibrators"):
        chain.set_params(ts=5)
    with pytest.raises(ValueError, match="'nope' is not a parameter"):
        chain.set_params(dac__loss="nll", nope=1)
    assert chain.stages[0].loss == "brier"


def test_a_fit_that_fails_leaves_the_calibrator_as_it_was(drifting, bank):
    val, shifted = drifting["val"], drifting["test-2"]
    dac = DAC(bank).fit(val, shifted=shifted)
    before = dac.predict_proba(val)
    unlabelled = Outputs(shifted.logits, None, shifted.features)
    with pytest.raises(ValueError, match=r"shifted\[0\] has no labels"):
        dac.fit(val, shifted=unlabelled)
    np.testing.assert_array_equal(dac.predict_proba(val), before)
    with pytest.raises(ValueError, match="not fitted yet"):
        fresh = DAC(bank)
        with pytest.raises(ValueError, match=r"shifted\[0\] has no labels"):
            fresh.fit(val, shifted=unlabelled)
        fresh.predict_proba(val)


@pytest.mark.parametrize("shifted", ["one", "tuple", "list"])
def test_shifted_data_come_alone_or_in_any_sequence(drifting, bank, shifted):
    one = drifting["test-2"]
    given = {"one": one, "tuple": (one, one), "list": [one, one, one]}[shifted]
    assert DAC(bank).fit(drifting["val"], shifted=given).shift_fitted


@pytest.mark.parametrize("shifted", [[(1, 2)], {"a": 1}, np.ones((3, 4))])
def test_shifted_data_of_another_kind_are_named(drifting, bank, shifted):
    with pytest.raises(TypeError, match=r"shifted\[(0|'a')\] must be Outputs or a tuple"):
        DAC(bank).fit(drifting["val"], shifted=shifted)


def test_a_dac_reduced_to_no_layer_has_temperatures(drifting, bank):
    val = drifting["val"]
    reduced = DAC(bank).fit(val).reduced_to([])
    np.testing.assert_allclose(reduced.temperatures(val), reduced.bias_)
    np.testing.assert_allclose(reduced.transform(val), val.logits / reduced.bias_, rtol=1e-5)


def test_temperatures_check_their_logits_as_every_entry_does(drifting, bank):
    val = drifting["val"]
    dac = DAC(bank).fit(val)
    np.testing.assert_allclose(dac.temperatures(val.logits.tolist(), features=val.features), dac.temperatures(val))
    with pytest.raises(ValueError, match="3 classes, but this DAC was fitted on 4"):
        dac.temperatures(val.logits[:, :3], features=val.features)


def test_a_method_of_ones_own_is_restored_by_its_class(drifting, tmp_path):
    class Halved(TemperatureScaling):
        short_name = "half"

    fitted = Halved().fit(drifting["val"])
    fitted.save(tmp_path / "half.densecal")
    with pytest.raises(ValueError, match="YourMethod.from_state"):
        densecal.load(tmp_path / "half.densecal")
    restored = Halved.from_state(densecal.io.artefacts.read(tmp_path / "half.densecal").state)
    assert isinstance(restored, Halved)
    assert restored.temperature_ == fitted.temperature_


@pytest.mark.parametrize("name", ["ts", "dac+ets", "platt", "dac+vs"])
def test_a_warning_of_the_fit_names_the_line_that_called_it(name):
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(300, 4)) - [0, 0, 0, 100]  # every prediction is right, and a class is missing
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make_calibrator(name).fit(logits, logits.argmax(axis=1), distances=rng.uniform(0.2, 1, (300, 1)))
    assert caught
    assert {warning.filename for warning in caught} == {__file__}
