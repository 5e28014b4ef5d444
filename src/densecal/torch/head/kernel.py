"""The last steps of a head as one Triton kernel: DAC's temperature, one of the common methods, the top class kept.

On a GPU these steps take fifteen launches or more, each of which costs the host more than the GPU. The torch modules
of ``temperatures.py`` and ``stages.py`` say what is computed, and compute it wherever this kernel does not.
"""

# Triton reads a kernel's source and types it itself.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from __future__ import annotations

from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from densecal.density.triton_kernels import current_device_of, is_exporting
from densecal.torch.head.stages import Ensemble, Softmax, Tempered
from densecal.torch.head.temperature import LinearTemperature, ShiftFittedTemperature

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

STAGES: tuple[type[nn.Module], ...] = (Softmax, Tempered, Ensemble)
TEMPERATURES: tuple[type[nn.Module], ...] = (LinearTemperature, ShiftFittedTemperature)
MOST_CLASSES = 16_384
"""More do not fit the registers of one block of threads."""


def serves(temperature: nn.Module | None, stages: nn.ModuleList, logits: Tensor, *, classes: int) -> bool:
    """Return whether the kernel does what these modules do, for these logits; the device must have Triton."""
    return (
        type(temperature) in TEMPERATURES
        and len(stages) == 1
        and type(stages[0]) in STAGES
        and classes <= MOST_CLASSES
        and not is_exporting()
        and not (torch.is_grad_enabled() and _needs_gradients(logits, temperature, stages))
    )


def _needs_gradients(logits: Tensor, *modules: nn.Module | None) -> bool:
    learned = chain.from_iterable(module.buffers() for module in modules if module is not None)
    return any(tensor.requires_grad for tensor in (logits, *learned))


def temper(
    logits: Tensor, distances: Tensor, temperature: Any, stage: nn.Module, *, classes: int
) -> tuple[Tensor, Tensor]:
    """Return DAC's temperatures and the calibrated probabilities.

    Parameters
    ----------
    logits : Tensor of shape (samples, classes)
        In any floating type.
    distances : Tensor of shape (samples, layers), float32
        To the k-th neighbours.
    temperature : LinearTemperature or ShiftFittedTemperature
        What makes temperatures of the distances.
    stage : Softmax, Tempered or Ensemble
        What makes probabilities of the tempered logits.
    classes : int
        As many as the logits have; their own shape may be a compiler's symbol, which no block of threads can have.
    """
    samples = logits.shape[0]
    layers = temperature.weights.shape[0]
    temperatures = torch.empty(samples, dtype=torch.float32, device=logits.device)
    probabilities = torch.empty((samples, classes), dtype=torch.float32, device=logits.device)
    fitted_on_shifts = isinstance(temperature, ShiftFittedTemperature)
    # What a kind of temperature or method lacks is not read: any tensor will do in its place.
    knots, coefficients, spread = (getattr(temperature, name, logits) for name in ("knots", "coefficients", "spread"))
    of_stage, mixture = (getattr(stage, name, logits) for name in ("temperature", "mixture"))
    if samples:
        block = triton.next_power_of_2(classes)
        with current_device_of(logits):
            _temper[(samples,)](
                logits, distances, temperature.weights, temperature.bias, knots, coefficients, spread,
                of_stage, mixture, temperatures, probabilities,
                logits.stride(0), logits.stride(1), distances.stride(0), distances.stride(1), classes, layers,
                knots.shape[1] if fitted_on_shifts else 0, fitted_on_shifts, temperature.squares_distances,
                STAGES.index(type(stage)), block, triton.next_power_of_2(max(1, layers)),
                num_warps=min(16, max(1, block // 256)),
            )  # fmt: skip
    return temperatures, probabilities


if triton is not None:

    @triton.jit
    def _softmax(values):
        powers = tl.exp(values - tl.max(values, axis=0))
        return powers / tl.sum(powers, axis=0)

    @triton.jit
    def _expected(margins, layer, is_layer, knots, coefficients, layers, KNOTS: tl.constexpr):
        """Return one measure's part of the expected scores: a straight piece, and a bend at each knot."""
        expected = margins * tl.load(coefficients + layer, mask=is_layer, other=0.0)
        for knot in range(KNOTS):
            bent = tl.maximum(margins - tl.load(knots + knot), 0.0)
            expected += bent * tl.load(coefficients + (knot + 1) * layers + layer, mask=is_layer, other=0.0)
        return expected

    @triton.jit
    def _temper(
        logits, distances, weights, bias, knots, coefficients, spread, of_stage, mixture, temperatures, probabilities,
        row_step, class_step, sample_step, layer_step, classes, layers,
        KNOTS: tl.constexpr, FITTED_ON_SHIFTS: tl.constexpr, SQUARES: tl.constexpr, STAGE: tl.constexpr,
        CLASSES: tl.constexpr, LAYERS: tl.constexpr,
    ):  # fmt: skip
        row = tl.program_id(0).to(tl.int64)
        column, layer = tl.arange(0, CLASSES), tl.arange(0, LAYERS)
        inside, is_layer = column < classes, layer < layers
        place = row * row_step + column.to(tl.int64) * class_step
        own = tl.load(logits + place, mask=inside, other=float("-inf")).to(tl.float32)
        top = tl.argmax(own, axis=0)
        place = row * sample_step + layer.to(tl.int64) * layer_step
        scores = tl.load(distances + place, mask=is_layer, other=0.0)
        if SQUARES:
            scores = scores * scores
        weight = tl.load(weights + layer, mask=is_layer, other=0.0)
        if FITTED_ON_SHIFTS:
            first = tl.max(own, axis=0)
            margin = first - tl.max(tl.where(column == top, float("-inf"), own), axis=0)
            height = first - tl.sum(tl.where(inside, own, 0.0), axis=0) / classes
            expected = tl.load(coefficients + layer, mask=is_layer, other=0.0)
            expected += _expected(margin, layer, is_layer, knots, coefficients + layers, layers, KNOTS)
            second = coefficients + (2 + KNOTS) * layers
            expected += _expected(height, layer, is_layer, knots + KNOTS, second, layers, KNOTS)
            excess = (scores - expected) / tl.load(spread + layer, mask=is_layer, other=1.0)
            # Not maximum, which would take a NaN for zero.
            excess = tl.where(excess < 0, 0.0, excess)
            temperature = tl.load(bias) * tl.exp(tl.sum(excess * weight, axis=0))
        else:
            temperature = tl.sum(scores * weight, axis=0) + tl.load(bias)
        tl.store(temperatures + row, temperature)
        tempered = own / temperature
        twice = tempered
        if STAGE > 0:
            twice = tempered / tl.load(of_stage)
        answer = _softmax(twice)
        if STAGE == 2:
            answer = tl.load(mixture + 2) + answer * tl.load(mixture)
            answer += _softmax(tempered) * tl.load(mixture + 1)
        # As keep_top_class: the logits' top class stays the top one where rounding has tied it with another.
        answer = tl.where(inside, answer, -1.0)
        largest = tl.max(answer, axis=0)
        raised = tl.where(tl.argmax(answer, axis=0) == top, largest, largest + largest * 1.1920928955078125e-07)
        # A row of NaN has no largest but the padding.
        raised = tl.where(largest < 0, float("nan"), raised)
        tl.store(probabilities + row * classes + column, tl.where(column == top, raised, answer), mask=inside)
