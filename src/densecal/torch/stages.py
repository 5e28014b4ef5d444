"""The post-hoc methods as torch modules: learned values in buffers, nothing but tensor operations in forward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from densecal.calibrators.base import Calibrator


class Softmax(nn.Module):
    """Probabilities of the logits as they are."""

    def forward(self, logits: Tensor) -> Tensor:
        """Return softmax(z)."""
        return logits.softmax(dim=-1)


class Tempered(nn.Module):
    """Temperature scaling."""

    temperature: Tensor

    def __init__(self, calibrator: Any) -> None:
        super().__init__()
        self.register_buffer("temperature", number(calibrator.temperature_))

    def forward(self, logits: Tensor) -> Tensor:
        """Return softmax(z / T)."""
        return (logits / self.temperature).softmax(dim=-1)


class Ensemble(nn.Module):
    """Ensemble temperature scaling."""

    temperature: Tensor
    mixture: Tensor

    def __init__(self, calibrator: Any) -> None:
        super().__init__()
        self.register_buffer("temperature", number(calibrator.temperature_))
        self.register_buffer("mixture", number(calibrator.mixture_))

    def forward(self, logits: Tensor) -> Tensor:
        """Return w1 softmax(z / T) + w2 softmax(z) + w3 / C."""
        tempered = (logits / self.temperature).softmax(dim=-1)
        plain = logits.softmax(dim=-1)
        return self.mixture[0] * tempered + self.mixture[1] * plain + self.mixture[2] / logits.shape[-1]


def number(value: Any) -> Tensor:
    """Return a learned number or array as a float32 tensor."""
    return torch.as_tensor(np.array(value), dtype=torch.float32)


STAGES: dict[str, Callable[[Any], nn.Module]] = {
    "ts": Tempered,
    "ets": Ensemble,
}
"""Short name -> module made from a fitted calibrator."""


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
    make = STAGES.get(calibrator.short_name)
    if make is None:
        raise ValueError(
            f"{type(calibrator).__name__} ({calibrator.short_name!r}) has no torch module. The methods that have one: "
            f"dac, {', '.join(STAGES)}. Use calibrator.predict_proba on the model's logits instead."
        )
    return make(calibrator)
