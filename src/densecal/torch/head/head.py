"""CalibrationHead: a fitted calibrator as an nn.Module, from logits and features to probabilities."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn

from densecal.arrays import Array, keep_top_class, to_numpy
from densecal.calibrators.base import Calibrator
from densecal.calibrators.dac import DAC
from densecal.calibrators.state import from_state
from densecal.density.torch_search import NearestCentres, NeighborSearch
from densecal.io.artefacts import BankState, CalibratorState
from densecal.torch.head.kernel import serves, temper
from densecal.torch.head.stages import Temperature, make_stage, measured_layers, reduced_state


class Details(NamedTuple):
    """The results of a calibrated model for a batch.

    Attributes
    ----------
    logits : Tensor of shape (n_samples, n_classes)
        The classifier's output.
    temperature : Tensor of shape (n_samples,)
        S(x), which divides the logits; all ones for a method without DAC.
    distances : dict of str to Tensor of shape (n_samples,)
        Distance from the training data in each layer with nonzero weight.
    probabilities : Tensor of shape (n_samples, n_classes)
        Calibrated probabilities.
    """

    logits: Tensor
    temperature: Tensor
    distances: dict[str, Tensor]
    probabilities: Tensor


class CalibrationHead(nn.Module):
    """A fitted calibrator as a module; its bank and its parameters are buffers.

    Layers with zero weight are omitted and need neither a bank nor features.

    Parameters
    ----------
    calibrator : Calibrator
        A fitted method, or a chain whose first stage may be DAC.
    names : mapping of str to str, optional
        New names for the calibrator's layers.

    Examples
    --------
    >>> import densecal
    >>> scaling = densecal.TemperatureScaling().fit([[4.0, 0.0]] * 4, [0, 0, 0, 1])
    >>> head = CalibrationHead(scaling)
    >>> head(torch.tensor([[4.0, 0.0]]), []).round(decimals=3)
    tensor([[0.7500, 0.2500]])
    """

    @torch.inference_mode(False)  # Buffers created in inference mode cannot be used in a backward pass.
    def __init__(self, calibrator: Calibrator, names: Mapping[str, str] | None = None) -> None:
        super().__init__()
        state = calibrator.state()
        dac, stages = calibrator.density_stage, list(state.stages)
        self.data_hashes = dict(state.data_hashes)
        self.accuracy_preserving = calibrator.accuracy_preserving
        self.n_classes = calibrator.n_classes_
        self.layers: tuple[str, ...] = ()
        self.search: NeighborSearch | NearestCentres | None = None
        self.temperature: Temperature | None = None
        if dac is not None:
            stages[0] = reduced_state(dac, names or {})
            self.layers = tuple(stages[0].learned["layers_"])
            self.temperature = Temperature(stages.pop(0))
            self.search = _make_search(dac) if self.layers else None
        self.stages = nn.ModuleList([make_stage(stage) for stage in stages])

    def forward(self, logits: Tensor, features: Sequence[Tensor]) -> Tensor:
        """Return calibrated float32 probabilities of shape (n_samples, n_classes).

        Parameters
        ----------
        logits : Tensor of shape (n_samples, n_classes)
            The classifier's output.
        features : sequence of Tensor of shape (n_samples, width)
            Pooled features, in the order of ``layers``.
        """
        return self._answer(logits, features)[-1]

    def details(self, logits: Tensor, features: Sequence[Tensor]) -> Details:
        """Return logits, temperatures, distances and probabilities."""
        logits, temperature, distances, probabilities = self._answer(logits, features)
        by_layer = dict(zip(self.layers, distances.unbind(dim=1), strict=True))
        return Details(logits, temperature, by_layer, probabilities)

    def _answer(self, logits: Tensor, features: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return float32 logits, temperatures, distances of shape (n_samples, n_layers) and probabilities."""
        if logits.shape[1] != self.n_classes:
            raise ValueError(
                f"The calibrator was fitted on {self.n_classes} classes, but got {logits.shape[1]} logits."
            )
        has_kernel = self._has_kernel(logits)
        in_kernels = has_kernel and isinstance(self.search, NearestCentres)
        # Distances and temperatures need float32 even if the classifier runs in half precision; kernels compute in it.
        with nullcontext() if in_kernels else _without_autocast(logits.device.type):
            given, logits = logits, logits.float()
            # The logits may be a layer too, and are converted once.
            features = [logits if part is given else part for part in features]
            distances = logits.new_zeros((logits.shape[0], 0)) if self.search is None else self.search(features)
            if has_kernel:
                temperature, probabilities = temper(
                    logits, distances, self.temperature, self.stages, n_classes=self.n_classes
                )
            else:
                temperature, probabilities = self._temper(logits, distances)
            return logits, temperature, distances, probabilities

    def _has_kernel(self, logits: Tensor) -> bool:
        has_kernels = self.search is not None and self.search.has_kernels
        return has_kernels and serves(self.temperature, self.stages, logits, n_classes=self.n_classes)

    def _temper(self, logits: Tensor, distances: Tensor) -> tuple[Tensor, Tensor]:
        temperature = (
            logits.new_ones(logits.shape[0]) if self.temperature is None else self.temperature(logits, distances)
        )
        rescaled = logits / temperature[:, None]
        stages = list(self.stages)
        for stage in stages[:-1]:
            rescaled = stage(rescaled).clamp_min(torch.finfo(torch.float32).tiny).log()
        probabilities = stages[-1](rescaled) if stages else rescaled.softmax(dim=-1)
        if self.accuracy_preserving:
            probabilities = keep_top_class(probabilities, logits)
        return temperature, probabilities

    @property
    def _modules_in_order(self) -> list[Any]:
        return [*([] if self.temperature is None else [self.temperature]), *self.stages]

    @property
    def calibrator(self) -> Calibrator:
        """The fitted calibrator with the current values of the buffers; DAC has no bank."""
        stages = tuple(module.served_state() for module in self._modules_in_order)
        return from_state(CalibratorState(stages, data_hashes=self.data_hashes))

    def bank_state(self) -> BankState | None:
        """Return the state of the bank, as a file stores it; None without DAC."""
        if self.search is None:
            return None
        banks = self._by_layer(self.search.banks())
        if isinstance(self.search, NeighborSearch):
            return BankState(banks, self.search.k, None)
        return BankState(banks, None, self._by_layer(self.search.counts_by_layer()))

    def _by_layer(self, tensors: Sequence[Tensor]) -> dict[str, Array]:
        return dict(zip(self.layers, (tensor.float().cpu().numpy() for tensor in tensors), strict=True))

    def get_extra_state(self) -> Tensor:
        """Return the method, the layers, k or the centres, and every learned value that is not a buffer.

        It is JSON in a tensor of bytes, because some formats of state dicts support only tensors.
        """
        learned = [module.dump() for module in self._modules_in_order]
        content = {**self._describe(), "data hashes": self.data_hashes, "learned": learned}
        return torch.frombuffer(bytearray(json.dumps(content).encode()), dtype=torch.uint8)

    def set_extra_state(self, state: Tensor) -> None:
        """Load the learned values of a state; raise if it belongs to another method or other layers."""
        there = json.loads(to_numpy(state).tobytes())
        for name, value in self._describe().items():
            if there[name] != value:
                raise ValueError(
                    f"The state dict belongs to another calibrated model: expected {name} {value!r}, got "
                    f"{there[name]!r}."
                )
        for module, learned in zip(self._modules_in_order, there["learned"], strict=True):
            module.load(learned)
        self.data_hashes = there["data hashes"]

    def _describe(self) -> dict[str, Any]:
        """Return the properties that a state dict must share with the model that loads it."""
        calibrator = from_state(CalibratorState(tuple(module.state for module in self._modules_in_order)))
        dac, search = calibrator.density_stage, self.search
        return {
            "method": calibrator.method_name,
            "layers": [] if dac is None else dac.layers_,
            "k =": search.k if isinstance(search, NeighborSearch) else None,
            "numbers of centres": list(search.centres) if isinstance(search, NearestCentres) else None,
            "number of classes": calibrator.n_classes_,
            "DAC's scores": None if dac is None else dac.scores,
            "identity stages": [stage.is_identity_ for stage in calibrator.stages],
        }

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        # .half() applies to the bank only: the learned parameters are few and would only lose precision.
        kept = {name: buffer for name, buffer in self.named_buffers() if not name.startswith("search.")}
        with torch.inference_mode(False):
            super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
            for name, before in kept.items():
                path, _, own = name.rpartition(".")
                module = self.get_submodule(path)
                after = getattr(module, own)
                setattr(module, own, before.to(after.device) if after.dtype != before.dtype else after)
        return self


def _without_autocast(device: str) -> AbstractContextManager[object]:
    known = torch.compiler.is_compiling() or torch.amp.is_autocast_available(device)
    autocast = known and torch.is_autocast_enabled(device)
    return torch.autocast(device, enabled=False) if autocast else nullcontext()


def _make_search(dac: DAC) -> NeighborSearch | NearestCentres:
    if dac.bank is None:
        raise ValueError(
            "This DAC was fitted on distances, without a bank, so it cannot measure distances of new inputs. Fit "
            "DAC(bank=FeatureBank(train_features)) with features=."
        )
    layers = measured_layers(dac)
    state = dac.bank.select(layers).state()
    vectors = [_as_tensor(state.features[layer]) for layer in layers]
    if dac.k is not None:
        return NeighborSearch(vectors, dac.k)
    return NearestCentres(vectors, [_as_tensor(counts) for counts in (state.counts or {}).values()])


def _as_tensor(values: Any) -> Tensor:
    return values.detach() if isinstance(values, Tensor) else torch.from_numpy(np.array(values))
