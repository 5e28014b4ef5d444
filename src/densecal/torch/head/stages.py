"""The post-hoc methods as torch modules: learned values in buffers, nothing but tensor operations in forward."""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from densecal.arrays import to_numpy
from densecal.calibrators.base import Calibrator
from densecal.calibrators.ensemble_temperature import EnsembleTemperatureScaling
from densecal.calibrators.intra_order import LOWEST_EXPONENT, IntraOrderPreserving
from densecal.calibrators.solvers.rows import centre_rows
from densecal.calibrators.temperature import TemperatureScaling


class Softmax(nn.Module):
    """Probabilities of the logits as they are."""

    def forward(self, logits: Tensor) -> Tensor:
        """Return softmax(z)."""
        return logits.softmax(dim=-1)

    def learned(self) -> dict[str, Tensor]:
        """Return the calibrator's learned attributes as they are served: none."""
        return {}


class Tempered(nn.Module):
    """Temperature scaling."""

    temperature: Tensor

    def __init__(self, calibrator: TemperatureScaling) -> None:
        super().__init__()
        self.register_buffer("temperature", number(calibrator.temperature_))

    def forward(self, logits: Tensor) -> Tensor:
        """Return softmax(z / T)."""
        return (logits / self.temperature).softmax(dim=-1)

    def learned(self) -> dict[str, Tensor]:
        """Return the calibrator's learned attributes as they are served."""
        return {"temperature_": self.temperature}


class Ensemble(nn.Module):
    """Ensemble temperature scaling."""

    temperature: Tensor
    mixture: Tensor

    def __init__(self, calibrator: EnsembleTemperatureScaling) -> None:
        super().__init__()
        self.register_buffer("temperature", number(calibrator.temperature_))
        self.classes = calibrator.n_classes_
        tempered, plain, uniform = calibrator.mixture_
        self.register_buffer("mixture", number([tempered, plain, uniform / self.classes]))

    def forward(self, logits: Tensor) -> Tensor:
        """Return w1 softmax(z / T) + w2 softmax(z) + w3 / C."""
        of_tempered, of_plain, uniform = self.mixture.unbind()
        mixed = torch.addcmul(uniform, (logits / self.temperature).softmax(dim=-1), of_tempered)
        return torch.addcmul(mixed, logits.softmax(dim=-1), of_plain)

    def learned(self) -> dict[str, Tensor]:
        """Return the calibrator's learned attributes as they are served."""
        return {
            "temperature_": self.temperature,
            "mixture_": self.mixture * self.mixture.new_tensor([1, 1, self.classes]),
        }


class IntraOrder(nn.Module):
    """Intra-order-preserving calibration: one increasing function of every logit, from its values on a grid."""

    nodes: Tensor
    slopes: Tensor
    values: Tensor
    growth: Tensor

    def __init__(self, calibrator: IntraOrderPreserving) -> None:
        super().__init__()
        growth = np.expm1(np.minimum(np.diff(calibrator.values_), -LOWEST_EXPONENT))
        self.register_buffer("nodes", torch.tensor(calibrator.nodes_))
        self.register_buffer("slopes", torch.tensor(calibrator.slopes_))
        self.register_buffer("values", torch.tensor(calibrator.values_))
        self.register_buffer("growth", torch.tensor(growth))

    def forward(self, logits: Tensor) -> Tensor:
        """Return softmax(f(z - mean z)), with exp(f) linear within the grid's cells and f linear beyond them."""
        cells = self.growth.shape[0]
        centred: Tensor = centre_rows(logits).double()
        low, high = self.nodes[0], self.nodes[-1]
        position = (centred.clamp(low, high) - low) * (cells / (high - low))
        cell = position.long().clamp(0, cells - 1)
        inside = self.values[cell] + torch.log1p((position - cell) * self.growth[cell])
        below, above = (centred - low).clamp_max(0), (centred - high).clamp_min(0)
        mapped = inside + self.slopes[0] * below + self.slopes[-1] * above
        return mapped.softmax(dim=-1).to(logits.dtype)

    def learned(self) -> dict[str, Tensor]:
        """Return the calibrator's learned attributes as they are served."""
        return {"nodes_": self.nodes, "slopes_": self.slopes, "values_": self.values}


class Method(nn.Module):
    """Any other method: the calibrator's own code, which runs on tensors too, with its learned numbers as buffers."""

    def __init__(self, calibrator: Calibrator) -> None:
        super().__init__()
        self.method = copy(calibrator)
        self.names: list[str] = []
        for name, value in vars(calibrator).items():
            if not name.endswith("_") or not isinstance(value, (np.ndarray, Tensor, float)):
                continue
            array = to_numpy(value)
            if array.dtype.kind == "f":
                self.names.append(name)
                self.register_buffer(name, torch.tensor(array))
                delattr(self.method, name)
        self.take_facts(calibrator)
        self.metadata = list(vars(self.method))

    def take_facts(self, calibrator: Calibrator) -> None:
        """Take what the calibrator learned that is no floating number: where things are, not how large."""
        for name, value in vars(calibrator).items():
            if name not in self.names:
                # Plain Python numbers instead of arrays, for the tracers' sake.
                setattr(self.method, name, value.tolist() if isinstance(value, (np.ndarray, Tensor)) else value)

    def forward(self, logits: Tensor) -> Tensor:
        """Return the method's probabilities."""
        # A method of this call's own: a tracer's tensors must not stay behind in the one that is kept.
        method = object.__new__(type(self.method))
        for name in self.metadata:
            setattr(method, name, getattr(self.method, name))
        for name in self.names:
            setattr(method, name, getattr(self, name))
        probabilities: Tensor = method._probabilities(logits)
        return probabilities

    def learned(self) -> dict[str, Tensor]:
        """Return the calibrator's learned attributes as they are served."""
        return {name: getattr(self, name) for name in self.names}


def number(value: Any) -> Tensor:
    """Return a learned number or array as a float32 tensor.

    Examples
    --------
    >>> number(1.5)
    tensor(1.5000)
    """
    # Row after row, as kernels read it: a choice of columns comes from NumPy column after column.
    return torch.as_tensor(np.array(value, order="C"), dtype=torch.float32)


def make_stage(calibrator: Calibrator) -> nn.Module:
    """Return a fitted calibrator as a torch module from logits to probabilities.

    Examples
    --------
    >>> import densecal
    >>> scaling = densecal.TemperatureScaling().fit([[4.0, 0.0]] * 4, [0, 0, 0, 1])
    >>> make_stage(scaling)(torch.tensor([[4.0, 0.0]])).round(decimals=3)
    tensor([[0.7500, 0.2500]])
    """
    if calibrator.is_identity_:
        return Softmax()
    if isinstance(calibrator, TemperatureScaling):
        return Tempered(calibrator)
    if isinstance(calibrator, EnsembleTemperatureScaling):
        return Ensemble(calibrator)
    if isinstance(calibrator, IntraOrderPreserving):
        return IntraOrder(calibrator)
    return Method(calibrator)
