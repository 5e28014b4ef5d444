"""The head's Triton kernel against the torch modules it stands for; test_kernel.py runs this file.

Without a GPU it needs TRITON_INTERPRET=1 before Triton is imported, so it runs in a process of its own.
"""

from __future__ import annotations

import os

import numpy as np
import pytest
import torch
from torch import nn

from densecal.arrays import keep_top_class
from densecal.io.artefacts import StageState
from densecal.torch.head.kernel import serves, temper
from densecal.torch.head.stages import Temperature, make_stage

DEVICE = torch.device("cpu" if os.environ.get("TRITON_INTERPRET") else "cuda")
WEIGHTS = [0.3, 0.1, 0.5]
EXCESS = {
    "excess_knots_": np.array([[0.5, 1.0, 2.0, 4.0], [1.0, 2.0, 3.0, 5.0]]),
    # In Fortran order, as after a fit that keeps only some of its layers.
    "excess_coefficients_": np.asfortranarray(np.random.default_rng(0).normal(scale=0.1, size=(11, 3))),
    "excess_spread_": np.array([0.1, 0.2, 0.05]),
}


def temperature_of(weights, bias, scores="paper", excess=None, adaptation=None):
    learned = {"weights_": np.array(weights), "bias_": bias, "plain_temperature_": 1.0, "adaptation_": adaptation}
    learned |= {"layers_": [str(place) for place in range(len(weights))], **(excess or dict.fromkeys(EXCESS))}
    return Temperature(StageState("dac", {"scores": scores}, learned)).to(DEVICE)


TEMPERATURES = {
    "linear": lambda: temperature_of(WEIGHTS, 0.7),
    "squares": lambda: temperature_of(WEIGHTS, 0.7, scores="published_code"),
    "no layers": lambda: temperature_of([], 0.7),
    "shift fitted": lambda: temperature_of(WEIGHTS, 1.2, excess=EXCESS),
}


def stages_of(method, learned, *, is_identity=False):
    return nn.ModuleList([make_stage(StageState(method, {}, {"is_identity_": is_identity, **learned}))]).to(DEVICE)


STAGES = {
    "none": lambda: nn.ModuleList(),
    "softmax": lambda: stages_of("ts", {}, is_identity=True),
    "ts": lambda: stages_of("ts", {"temperature_": 1.7}),
    "ets": lambda: stages_of("ets", {"temperature_": 0.6, "mixture_": np.array([0.7, 0.2, 0.1])}),
}


def draw(classes, layers=3, samples=9):
    torch.manual_seed(classes)
    return 3 * torch.randn(samples, classes, device=DEVICE), 0.2 + torch.rand(samples, layers, device=DEVICE)


def by_modules(logits, distances, temperature, stages):
    found = temperature(logits, distances)
    tempered = logits / found[:, None]
    return found, keep_top_class(stages[0](tempered) if len(stages) else tempered.softmax(dim=1), logits)


@pytest.mark.parametrize("n_classes", [2, 10, 1000])
@pytest.mark.parametrize("stages", STAGES)
@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_the_kernel_computes_what_the_modules_compute(temperature, stages, n_classes):
    temperature, stages = TEMPERATURES[temperature](), STAGES[stages]()
    given = *draw(n_classes, len(temperature.weights_)), temperature, stages
    for got, expected in zip(temper(*given, n_classes=n_classes), by_modules(*given), strict=True):
        torch.testing.assert_close(got, expected, atol=1e-6, rtol=1e-5)


def test_slices_and_half_precision_are_read_as_they_are():
    logits, distances = draw(12)
    temperature, stages = TEMPERATURES["shift fitted"](), STAGES["ets"]()
    strided, turned = logits.half()[:, ::2], distances.T.contiguous().T
    got = temper(strided, turned, temperature, stages, n_classes=6)
    expected = by_modules(strided.float(), distances, temperature, stages)
    torch.testing.assert_close(got, expected, atol=1e-6, rtol=1e-5)


def test_the_top_class_stays_where_probabilities_tie():
    logits = torch.tensor([[1.0, 1.0 + 1e-7, 0.0], [1.0, 1.0, 0.0]], device=DEVICE)
    distances = torch.full((2, 3), 500.0, device=DEVICE)
    got = temper(logits, distances, TEMPERATURES["linear"](), STAGES["none"](), n_classes=3)[1]
    assert got.argmax(dim=1).tolist() == [1, 0]
    torch.testing.assert_close(got.sum(dim=1), torch.ones(2, device=DEVICE))


@pytest.mark.parametrize("temperature", ["linear", "shift fitted"])
def test_what_is_not_finite_spoils_its_own_row_only(temperature):
    logits, distances = draw(10)
    logits[1, 3], distances[2, 1], logits[4, 0] = float("nan"), float("nan"), float("-inf")
    given = logits, distances, TEMPERATURES[temperature](), STAGES["ets"]()
    got, expected = temper(*given, n_classes=10)[1], by_modules(*given)[1]
    assert expected[1:3].isnan().all() and not expected[5:].isnan().any()
    torch.testing.assert_close(got, expected, atol=1e-6, rtol=1e-5, equal_nan=True)


@pytest.mark.parametrize("value", [-1e4, -1e9, torch.finfo(torch.float32).min])
def test_masked_classes_have_no_part_in_the_temperature(value):
    logits, distances = draw(10)
    logits[:, 3] = value
    given = logits, distances, TEMPERATURES["shift fitted"](), STAGES["none"]()
    for got, expected in zip(temper(*given, n_classes=10), by_modules(*given), strict=True):
        torch.testing.assert_close(got, expected, atol=1e-6, rtol=1e-5)
        assert got.isfinite().all()


def test_answers_are_float32_whatever_torchs_default_is():
    given = *draw(10), TEMPERATURES["linear"](), STAGES["none"]()
    torch.set_default_dtype(torch.float64)
    try:
        assert [part.dtype for part in temper(*given, n_classes=10)] == [torch.float32] * 2
    finally:
        torch.set_default_dtype(torch.float32)


def test_an_empty_batch_has_an_empty_answer():
    logits, distances = draw(10)
    got = temper(logits[:0], distances[:0], TEMPERATURES["linear"](), STAGES["none"](), n_classes=10)
    assert [tuple(part.shape) for part in got] == [(0,), (0, 10)]


def test_gradients_and_other_methods_go_by_the_modules():
    logits, _ = draw(10)
    temperature, softmax = TEMPERATURES["linear"](), STAGES["softmax"]()
    assert serves(temperature, softmax, logits, n_classes=10)
    assert serves(temperature, STAGES["none"](), logits, n_classes=10)
    assert not serves(temperature, softmax, logits.clone().requires_grad_(), n_classes=10)
    temperature.bias_.requires_grad_()
    assert not serves(temperature, softmax, logits, n_classes=10)
    with torch.no_grad():
        assert serves(temperature, softmax, logits, n_classes=10)
    assert not serves(temperature, nn.ModuleList([*softmax, *softmax]), logits, n_classes=10)
    assert not serves(temperature, stages_of("vs", {"scale_": np.ones(10)}), logits, n_classes=10)
    adapted = temperature_of(WEIGHTS, 1.2, excess=EXCESS, adaptation=np.array([[0.0, 1.0], [0.1, 0.6]]))
    assert not serves(adapted, softmax, logits, n_classes=10)
    assert not serves(None, softmax, logits, n_classes=10)
