"""The head's Triton kernel against the torch modules it stands for; test_tail_kernel.py runs this file.

Without a GPU it needs TRITON_INTERPRET=1 before Triton is imported, so it runs in a process of its own.
"""

from __future__ import annotations

import os
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

from densecal.calibrators.solvers.rows import keep_top_class
from densecal.torch.head.kernel import serves, temper
from densecal.torch.head.stages import Ensemble, Softmax, Tempered
from densecal.torch.head.temperature import LinearTemperature, ShiftFittedTemperature

DEVICE = torch.device("cpu" if os.environ.get("TRITON_INTERPRET") else "cuda")
WEIGHTS = [0.3, 0.1, 0.5]
EXCESS = SimpleNamespace(
    scores="paper",
    weights_=WEIGHTS,
    bias_=1.2,
    excess_knots_=[[0.5, 1.0, 2.0, 4.0], [1.0, 2.0, 3.0, 5.0]],
    # Column after column, as a fit leaves them when it keeps some of its layers.
    excess_coefficients_=np.asfortranarray(np.random.default_rng(0).normal(scale=0.1, size=(11, 3))),
    excess_spread_=[0.1, 0.2, 0.05],
)
TEMPERATURES = {
    "linear": lambda: LinearTemperature(WEIGHTS, 0.7),
    "squares": lambda: LinearTemperature(WEIGHTS, 0.7, squares_distances=True),
    "no layers": lambda: LinearTemperature([], 0.7),
    "fitted on shifts": lambda: ShiftFittedTemperature(EXCESS),
}
STAGES = {
    "softmax": lambda classes: Softmax(),
    "ts": lambda classes: Tempered(SimpleNamespace(temperature_=1.7)),
    "ets": lambda classes: Ensemble(
        SimpleNamespace(temperature_=0.6, mixture_=np.array([0.7, 0.2, 0.1]), n_classes_=classes)
    ),
}


def draw(classes, layers=3, samples=9):
    torch.manual_seed(classes)
    return 3 * torch.randn(samples, classes, device=DEVICE), 0.2 + torch.rand(samples, layers, device=DEVICE)


def by_modules(logits, distances, temperature, stage):
    found = temperature(logits, distances)
    return found, keep_top_class(stage(logits / found[:, None]), logits)


@pytest.mark.parametrize("classes", [2, 10, 1000])
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("temperature", TEMPERATURES)
def test_the_kernel_computes_what_the_modules_say(temperature, stage, classes):
    temperature, stage = TEMPERATURES[temperature]().to(DEVICE), STAGES[stage](classes).to(DEVICE)
    given = draw(classes, len(temperature.weights))
    for got, expected in zip(
        temper(*given, temperature, stage, classes=classes), by_modules(*given, temperature, stage), strict=True
    ):
        torch.testing.assert_close(got, expected, atol=1e-6, rtol=1e-5)


def test_slices_and_half_precision_are_read_as_they_are():
    logits, distances = draw(12)
    temperature, stage = TEMPERATURES["fitted on shifts"]().to(DEVICE), STAGES["ets"](6).to(DEVICE)
    strided, turned = logits.half()[:, ::2], distances.T.contiguous().T
    got = temper(strided, turned, temperature, stage, classes=6)
    expected = by_modules(strided.float(), distances, temperature, stage)
    torch.testing.assert_close(got, expected, atol=1e-6, rtol=1e-5)


def test_the_top_class_stays_where_probabilities_tie():
    logits = torch.tensor([[1.0, 1.0 + 1e-7, 0.0], [1.0, 1.0, 0.0]], device=DEVICE)
    distances = torch.full((2, 3), 500.0, device=DEVICE)
    got = temper(logits, distances, TEMPERATURES["linear"]().to(DEVICE), Softmax(), classes=3)[1]
    assert got.argmax(dim=1).tolist() == [1, 0]
    torch.testing.assert_close(got.sum(dim=1), torch.ones(2, device=DEVICE))


@pytest.mark.parametrize("temperature", ["linear", "fitted on shifts"])
def test_what_is_not_finite_spoils_its_own_row_only(temperature):
    logits, distances = draw(10)
    logits[1, 3], distances[2, 1], logits[4, 0] = float("nan"), float("nan"), float("-inf")
    given = logits, distances, TEMPERATURES[temperature]().to(DEVICE), STAGES["ets"](10).to(DEVICE)
    got, expected = temper(*given, classes=10)[1], by_modules(*given)[1]
    assert expected[1:3].isnan().all() and not expected[5:].isnan().any()
    torch.testing.assert_close(got, expected, atol=1e-6, rtol=1e-5, equal_nan=True)


def test_answers_are_float32_whatever_torchs_default_is():
    given = *draw(10), TEMPERATURES["linear"]().to(DEVICE), Softmax()
    torch.set_default_dtype(torch.float64)
    try:
        assert [part.dtype for part in temper(*given, classes=10)] == [torch.float32] * 2
    finally:
        torch.set_default_dtype(torch.float32)


def test_an_empty_batch_has_an_empty_answer():
    logits, distances = draw(10)
    got = temper(logits[:0], distances[:0], TEMPERATURES["linear"]().to(DEVICE), Softmax(), classes=10)
    assert [tuple(part.shape) for part in got] == [(0,), (0, 10)]


def test_gradients_and_other_methods_go_by_the_modules():
    logits, _ = draw(10)
    temperature, softmax = TEMPERATURES["linear"]().to(DEVICE), nn.ModuleList([Softmax()])
    assert serves(temperature, softmax, logits, classes=10)
    assert not serves(temperature, softmax, logits.clone().requires_grad_(), classes=10)
    temperature.bias.requires_grad_()
    assert not serves(temperature, softmax, logits, classes=10)
    with torch.no_grad():
        assert serves(temperature, softmax, logits, classes=10)
    assert not serves(temperature, nn.ModuleList([Softmax(), Softmax()]), logits, classes=10)
    assert not serves(temperature, nn.ModuleList([nn.Softmax(dim=1)]), logits, classes=10)
