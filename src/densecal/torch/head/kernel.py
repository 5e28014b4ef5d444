"""The last steps of a head as one Triton kernel: DAC's temperature, a common method, and preserving the top class.

As separate operations these steps take at least fifteen launches, and launching takes longer than computing. The
modules of ``stages.py`` are the reference, and the fallback where this kernel does not apply.
"""

# Triton compiles the source of a kernel and infers its types.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"

from __future__ import annotations

from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from densecal.density.triton_kernels import current_device_of, is_exporting
from densecal.torch.head.stages import EXCESS, CalibratorModule, Softmax, Temperature

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

STAGES = ("softmax", "ts", "ets")
MAX_CLASSES = 16_384
"""More classes do not fit into the registers of one thread block."""


def serves(temperature: nn.Module | None, stages: nn.ModuleList, logits: Tensor, *, n_classes: int) -> bool:
    """Return whether the kernel implements these modules. Triton must be available."""
    return (
        isinstance(temperature, Temperature)
        and not temperature.is_adapted
        and len(stages) <= 1
        and _method(stages) in STAGES
        and n_classes <= MAX_CLASSES
        and not is_exporting()
        and not (torch.is_grad_enabled() and _needs_gradients(logits, temperature, stages))
    )


def _method(stages: nn.ModuleList) -> str | None:
    if not len(stages) or isinstance(stages[0], Softmax):
        return "softmax"
    return stages[0].state.method if isinstance(stages[0], CalibratorModule) else None


def _needs_gradients(logits: Tensor, *modules: nn.Module | None) -> bool:
    learned = chain.from_iterable(module.buffers() for module in modules if module is not None)
    return any(tensor.requires_grad for tensor in (logits, *learned))


def temper(
    logits: Tensor, distances: Tensor, temperature: Any, stages: nn.ModuleList, *, n_classes: int
) -> tuple[Tensor, Tensor]:
    """Return DAC's temperatures and the calibrated probabilities.

    ``stages`` is empty or has one of `STAGES`. ``n_classes`` is the width of the logits as a constant, because their
    shape may be symbolic under a compiler.
    """
    n_samples, n_layers = logits.shape[0], temperature.weights_.shape[0]
    temperatures = torch.empty(n_samples, dtype=torch.float32, device=logits.device)
    probabilities = torch.empty((n_samples, n_classes), dtype=torch.float32, device=logits.device)
    # The logits are placeholders for missing parameters, which the kernel does not read.
    knots, coefficients, spread = (getattr(temperature, name, logits) for name in EXCESS)
    stage = stages[0] if len(stages) else temperature
    of_stage, mixture = (getattr(stage, name, logits) for name in ("temperature_", "mixture_"))
    if n_samples:
        block = triton.next_power_of_2(n_classes)
        with current_device_of(logits):
            _temper[(n_samples,)](
                logits, distances, temperature.weights_, temperature.bias_, knots, coefficients, spread,
                of_stage, mixture, temperatures, probabilities,
                logits.stride(0), logits.stride(1), distances.stride(0), distances.stride(1), n_classes, n_layers,
                temperature.mask_gap, knots.shape[1] if temperature.is_shift_fitted else 0, temperature.is_shift_fitted,
                temperature.squares_distances, STAGES.index(_method(stages) or ""), block,
                triton.next_power_of_2(max(1, n_layers)),
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
        """Return the contribution of one statistic to the expected scores: linear, with a hinge at each knot."""
        expected = margins * tl.load(coefficients + layer, mask=is_layer, other=0.0)
        for knot in range(KNOTS):
            bent = tl.maximum(margins - tl.load(knots + knot), 0.0)
            expected += bent * tl.load(coefficients + (knot + 1) * layers + layer, mask=is_layer, other=0.0)
        return expected

    @triton.jit
    def _temper(
        logits, distances, weights, bias, knots, coefficients, spread, of_stage, mixture, temperatures, probabilities,
        row_step, class_step, sample_step, layer_step, classes, layers, mask_gap,
        KNOTS: tl.constexpr, SHIFT_FITTED: tl.constexpr, SQUARES: tl.constexpr, STAGE: tl.constexpr,
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
        if SHIFT_FITTED:
            first = tl.max(own, axis=0)
            # As in fill_masked: the lowest other logit in place of those of masked classes.
            masked = own < first - mask_gap
            lowest = tl.min(tl.where(inside & (masked == 0), own, first), axis=0)
            seen = tl.where(masked, lowest, own)
            margin = first - tl.max(tl.where((column == top) | (inside == 0), float("-inf"), seen), axis=0)
            height = first - tl.sum(tl.where(inside, seen, 0.0), axis=0) / classes
            expected = tl.load(coefficients + layer, mask=is_layer, other=0.0)
            expected += _expected(margin, layer, is_layer, knots, coefficients + layers, layers, KNOTS)
            second = coefficients + (2 + KNOTS) * layers
            expected += _expected(height, layer, is_layer, knots + KNOTS, second, layers, KNOTS)
            excess = (scores - expected) / tl.load(spread + layer, mask=is_layer, other=1.0)
            # Not tl.maximum, which turns NaN into zero.
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
            answer = tl.load(mixture + 2) / classes + answer * tl.load(mixture)
            answer += _softmax(tempered) * tl.load(mixture + 1)
        # As in keep_top_class: the top class of the logits remains the top class if rounding causes a tie.
        answer = tl.where(inside, answer, -1.0)
        largest = tl.max(answer, axis=0)
        raised = tl.where(tl.argmax(answer, axis=0) == top, largest, largest + largest * 1.1920928955078125e-07)
        # In a row of NaN the maximum is the padding.
        raised = tl.where(largest < 0, float("nan"), raised)
        tl.store(probabilities + row * classes + column, tl.where(column == top, raised, answer), mask=inside)
