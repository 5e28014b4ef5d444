"""The contract of every calibrator: one Outputs, one search, stages, state."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

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
    with pytest.raises(ValueError, match="neighbour 1, but this DAC uses neighbour 10"):
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
