from __future__ import annotations

import pytest

from densecal import DAC, Chain, EnsembleTemperatureScaling, FeatureBank, TemperatureScaling
from densecal.evaluation import Condition, evaluate_conditions


@pytest.fixture(scope="session")
def fitted(drifting):
    val = drifting["val"]
    bank = FeatureBank(drifting["train"].features, k=10)
    made = {
        "ts": TemperatureScaling(),
        "ets": EnsembleTemperatureScaling(),
        "dac+ts": Chain(DAC(bank), TemperatureScaling()),
        "dac+ets": Chain(DAC(bank), EnsembleTemperatureScaling()),
    }
    return {name: one.fit(val.logits, val.labels, features=val.features) for name, one in made.items()}


@pytest.fixture(scope="session")
def conditions(drifting):
    return [Condition.from_outputs(drifting[name]) for name in drifting if name.startswith(("test", "ood"))]


@pytest.fixture(scope="session")
def table(fitted, conditions):
    return evaluate_conditions(fitted, conditions, oracle=True, n_resamples=100)
