"""CalibrationHead: a fitted calibrator as an nn.Module, from logits and features to probabilities."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from copy import copy
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn

from densecal.calibrators.base import Calibrator
from densecal.calibrators.dac import DAC
from densecal.calibrators.solvers.rows import keep_top_class
from densecal.density.bank import FeatureBank
from densecal.density.torch_search import NeighborSearch
from densecal.torch.head.kernel import serves, temper
from densecal.torch.head.stages import Method, Softmax, make_stage
from densecal.torch.head.state import adopt, describe, restored, stages_of, used_layers, with_stages, without_bank
from densecal.torch.head.temperature import make_temperature


class Details(NamedTuple):
    """What a calibrated model knows about a batch.

    Attributes
    ----------
    logits : Tensor of shape (samples, classes)
        What the classifier said.
    temperature : Tensor of shape (samples,)
        S(x), which divides the logits; all ones for a method without DAC.
    distances : dict of str to Tensor of shape (samples,)
        How far each input is from the training data in each layer that has a weight.
    probabilities : Tensor of shape (samples, classes)
        The calibrated answer.

    Examples
    --------
    >>> import densecal
    >>> from densecal.torch import CalibratedModel
    >>> scaling = densecal.TemperatureScaling().fit([[4.0, 0.0]] * 4, [0, 0, 0, 1])
    >>> details = CalibratedModel(nn.Identity(), scaling, layouts={}).details(torch.tensor([[4.0, 0.0]]))
    >>> details.logits, details.probabilities.round(decimals=2)
    (tensor([[4., 0.]]), tensor([[0.7500, 0.2500]]))
    """

    logits: Tensor
    temperature: Tensor
    distances: dict[str, Tensor]
    probabilities: Tensor


class CalibrationHead(nn.Module):
    """A fitted calibrator as a module; its bank and its parameters are buffers.

    Layers whose weight is zero are left out: they need no bank and no features.

    Parameters
    ----------
    calibrator : Calibrator
        A fitted method, or a chain that begins with DAC.
    names : mapping of str to str, optional
        Other names for the calibrator's layers.

    Examples
    --------
    >>> import densecal
    >>> scaling = densecal.TemperatureScaling().fit([[4.0, 0.0]] * 4, [0, 0, 0, 1])
    >>> head = CalibrationHead(scaling)
    >>> head(torch.tensor([[4.0, 0.0]]), []).round(decimals=3)
    tensor([[0.7500, 0.2500]])
    """

    def __init__(self, calibrator: Calibrator, names: Mapping[str, str] | None = None) -> None:
        super().__init__()
        # Buffers made under inference mode could never take part in a backward pass.
        with torch.inference_mode(False):
            self._take(calibrator, names or {})

    def _take(self, calibrator: Calibrator, names: Mapping[str, str]) -> None:
        stages = stages_of(calibrator)
        self._calibrator = without_bank(calibrator, names)
        self.accuracy_preserving = calibrator.accuracy_preserving
        self.classes = calibrator.n_classes_
        self.layers: tuple[str, ...] = ()
        self.search: NeighborSearch | None = None
        self.temperature: nn.Module | None = None
        if isinstance(stages[0], DAC):
            self._take_dac(stages.pop(0), names)
        if any(isinstance(stage, DAC) for stage in stages):
            raise ValueError("A calibrated model has DAC once, as its first stage: 'dac+ets', not 'ets+dac'.")
        self.stages = nn.ModuleList([make_stage(stage) for stage in stages] or [Softmax()])

    def _take_dac(self, dac: DAC, names: Mapping[str, str]) -> None:
        used = used_layers(dac)
        self.layers = tuple(names.get(layer, layer) for layer in used)
        self.temperature = make_temperature(dac)
        if not used:
            return
        if dac.bank is None:
            raise ValueError(
                "This DAC was fitted on distances, without a bank, so a model cannot measure new inputs with it. Fit "
                "DAC(bank=FeatureBank(train_features)) with features=."
            )
        banks = [_as_tensor(dac.bank, layer) for layer in used]
        self.search = NeighborSearch(banks, [1 if dac.scores == "published_code" else dac.bank.k])

    def forward(self, logits: Tensor, features: Sequence[Tensor]) -> Tensor:
        """Return calibrated probabilities, float32, of shape (samples, classes).

        Parameters
        ----------
        logits : Tensor of shape (samples, classes)
            The classifier's output.
        features : sequence of Tensor of shape (samples, width)
            Pooled features, in the order of ``layers``.
        """
        return self._answer(logits, features)[-1]

    def details(self, logits: Tensor, features: Sequence[Tensor]) -> Details:
        """Return the probabilities with all that led to them."""
        logits, temperature, distances, probabilities = self._answer(logits, features)
        by_layer = dict(zip(self.layers, distances.unbind(dim=1), strict=True))
        return Details(logits, temperature, by_layer, probabilities)

    def _answer(self, logits: Tensor, features: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return float32 logits, temperatures, distances of shape (samples, layers) and probabilities."""
        if logits.shape[1] != self.classes:
            raise ValueError(f"The calibrator was fitted on {self.classes} classes, but got {logits.shape[1]} logits.")
        device = logits.device.type
        known = torch.compiler.is_compiling() or torch.amp.is_autocast_available(device)
        autocast = known and torch.is_autocast_enabled(device)
        # The classifier may run in half precision; distances and temperatures must not.
        with torch.autocast(device, enabled=False) if autocast else nullcontext():
            logits = logits.float()
            if self.search is None:
                distances = logits.new_zeros((logits.shape[0], 0))
            else:
                distances = self.search(features)[:, :, 0]
            if self._has_kernel(logits):
                stage, classes = self.stages[0], self.classes
                temperature, probabilities = temper(logits, distances, self.temperature, stage, classes=classes)
            else:
                temperature, probabilities = self._temper(logits, distances)
            return logits, temperature, distances, probabilities

    def _has_kernel(self, logits: Tensor) -> bool:
        has_kernels = self.search is not None and self.search.has_kernels
        return has_kernels and serves(self.temperature, self.stages, logits, classes=self.classes)

    def _temper(self, logits: Tensor, distances: Tensor) -> tuple[Tensor, Tensor]:
        temperature = (
            logits.new_ones(logits.shape[0]) if self.temperature is None else self.temperature(logits, distances)
        )
        rescaled = logits / temperature[:, None]
        *earlier, last = self.stages
        for stage in earlier:
            rescaled = stage(rescaled).clamp_min(torch.finfo(torch.float32).tiny).log()
        probabilities = last(rescaled)
        if self.accuracy_preserving:
            probabilities = keep_top_class(probabilities, logits)
        return temperature, probabilities

    @property
    def calibrator(self) -> Calibrator:
        """The calibrator with what is served now, whatever was loaded into the buffers; DAC is without its bank."""
        modules = [*([] if self.temperature is None else [self.temperature]), *self.stages]
        stages = []
        for stage, module in zip(stages_of(self._calibrator), modules, strict=False):
            stages.append(copy(stage))
            for name, buffer in module.learned().items():
                setattr(stages[-1], name, restored(getattr(stage, name), buffer))
        return with_stages(self._calibrator, stages)

    @property
    def k(self) -> int | None:
        """Which neighbour is measured, if any is."""
        return None if self.search is None else self.search.ks[0]

    def get_extra_state(self) -> Tensor:
        """Return what the numbers in the state dict belong to: the method, the layers, k and the like."""
        return describe(self._calibrator, self.k)

    def set_extra_state(self, state: Tensor) -> None:
        """Refuse numbers that belong to another method or to other layers."""
        self._calibrator = adopt(self._calibrator, self.k, state)
        later = stages_of(self._calibrator)[0 if self.temperature is None else 1 :]
        for stage, module in zip(later, self.stages, strict=False):
            if isinstance(module, Method):
                module.take_facts(stage)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        # .half() is for the bank: a handful of learned numbers gains nothing from it and would lose digits.
        kept = {name: buffer for name, buffer in self.named_buffers() if not name.startswith("search.")}
        with torch.inference_mode(False):
            super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
            for name, before in kept.items():
                path, _, own = name.rpartition(".")
                module = self.get_submodule(path)
                after = getattr(module, own)
                setattr(module, own, before.to(after.device) if after.dtype != before.dtype else after)
        return self


def _as_tensor(bank: FeatureBank, layer: str) -> Tensor:
    values: Any = bank[layer]
    return values.detach() if isinstance(values, Tensor) else torch.from_numpy(np.array(values))
