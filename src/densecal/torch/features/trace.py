"""Traces of a forward pass: the modules that run, their order and their outputs."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import Any

import torch
from torch import Tensor, nn

from densecal.torch.batches import Batch, BatchFn, device_of, split_batch
from densecal.torch.features.capture import LOCK, evaluating, uncompiled
from densecal.torch.features.channel_axes import Axes, ChannelAxes
from densecal.torch.features.layout import Layout, first_tensor, padded, raw_logits_of, token_mask

EXAMPLE_SAMPLES = (2, 3, 5, 7)
"""Number of samples to run: the first of these that differs from every other dimension of the inputs."""
ROUNDING = 2e-6


@dataclass
class Call:
    """One call of one module; ``start`` and ``finish`` are steps of the trace."""

    name: str
    module: nn.Module
    start: int
    finish: int = -1
    shape: tuple[int, ...] | None = None
    layout: Layout | None = None
    """How to pool the output; None if it cannot be pooled."""
    is_guess: bool = False
    """Whether the layout was guessed from the outputs with as many axes, because no module determines it."""
    pooled: Tensor | None = None
    mask: Tensor | None = None
    """The token mask; None for a nested output, which has its own."""
    tensor_id: int = -1
    """Equal for two calls that returned the same tensor."""
    input_axes: Axes | None = None
    input_pooled: Tensor | None = None

    def with_mask(self, layout: Layout) -> Layout:
        """Return the layout, marked as masked if the token mask applies to this output."""
        is_masked = self.mask is not None and self.shape is not None and layout.has_tokens(self.shape, self.mask)
        return replace(layout, masked=is_masked)

    @property
    def is_leaf(self) -> bool:
        """Whether the module has no submodules."""
        return next(self.module.children(), None) is None

    def gives(self, values: Tensor) -> bool:
        """Return whether the pooled output equals these values, up to rounding."""
        if self.pooled is None or self.pooled.shape != values.shape:
            return False
        largest = float(values.abs().max())
        return bool((self.pooled - values).abs().max() <= ROUNDING * largest)

    def contains(self, other: Call) -> bool:
        """Return whether the other call ran inside this one."""
        return self.start < other.start and other.finish < self.finish


@dataclass
class Trace:
    """The modules that ran on an example, in the order in which they finished."""

    calls: list[Call]
    logits: Tensor
    samples: int
    counts: Mapping[str, int]

    @property
    def usable(self) -> list[Call]:
        """Calls of modules that ran once and whose output can be pooled, except those that returned the logits."""
        return [
            call
            for call in self.calls
            if call.name and call.layout is not None and self.counts[call.name] == 1 and not self._is_logits(call)
        ]

    @property
    def head(self) -> Call | None:
        """The innermost module that returned the logits."""
        return next((call for call in self.calls if self._is_logits(call)), None)

    def _is_logits(self, call: Call) -> bool:
        return call.tensor_id == id(self.logits) or call.gives(self.logits)


def trace(model: nn.Module, example: object, batch_fn: BatchFn[Any] | None = None) -> Trace:
    """Run the model on a few samples of an example batch and record every module that runs."""
    batch = split_batch(example, model, batch_fn)
    batch = batch.head(_few(batch)).to(device_of(model))
    recorder = _Recorder(batch.n_samples, token_mask(model, batch.args, batch.kwargs))
    handles = []
    try:
        with LOCK:
            for name, module in model.named_modules():
                handles.append(module.register_forward_pre_hook(partial(recorder.before, name)))
                handles.append(module.register_forward_hook(recorder.after))
        with evaluating(model), torch.inference_mode(), uncompiled():
            output = model(*batch.args, **batch.kwargs)
    finally:
        with LOCK:
            for handle in handles:
                handle.remove()
    counts = Counter(call.name for call in recorder.calls)
    return Trace(recorder.calls, raw_logits_of(output), batch.n_samples, counts)


def _few(batch: Batch) -> int:
    """Return how many samples to run, so that the batch axis differs in length from the other axes."""
    sides = {side for tensor in batch.tensors for side in tensor.shape[1:]}
    telling = [few for few in EXAMPLE_SAMPLES if few not in sides and few <= batch.n_samples]
    return telling[0] if telling else EXAMPLE_SAMPLES[0]


class _Recorder:
    def __init__(self, samples: int, mask: Tensor | None) -> None:
        self.thread = threading.get_ident()
        self.axes = ChannelAxes(samples)
        self.mask = mask
        self.steps = count()
        self.open: list[Call] = []
        self.calls: list[Call] = []
        self.kept: list[Tensor] = []

    def before(self, name: str, module: nn.Module, arguments: tuple[Any, ...]) -> None:
        if threading.get_ident() != self.thread:
            return  # Another thread runs the same classifier.
        call = Call(name, module, next(self.steps))
        entered = first_tensor(arguments)
        if entered is not None and not entered.is_nested and entered.ndim >= 2 and entered.is_floating_point():
            call.input_axes = self.axes.of_input(tuple(entered.shape))
            flat = entered.detach().flatten(1)
            if flat.shape[1] == entered.shape[1]:
                call.input_pooled = flat.float().clone()
        self.open.append(call)

    def after(self, module: nn.Module, arguments: Any, output: Any) -> None:
        if threading.get_ident() != self.thread:
            return
        call = self.open.pop()
        call.finish = next(self.steps)
        tensor = first_tensor(output)
        if tensor is not None and tensor.is_floating_point():
            call.shape = tuple((padded(tensor)[0] if tensor.is_nested else tensor).shape)
            call.layout, call.is_guess = self.axes.of_output(module, call.shape, call.input_axes)
            call.mask = None if tensor.is_nested else self.mask
            call.tensor_id = id(tensor)
            # Keep the tensor, because the id of a freed tensor may be reused.
            self.kept.append(tensor)
            if call.layout is not None:
                call.pooled = call.layout.pool(tensor.detach(), self.mask)
        self.calls.append(call)
