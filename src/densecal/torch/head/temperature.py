"""The temperature of a fitted DAC as a torch module: from logits and distances to S(x)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from densecal.calibrators.dac import DAC
from densecal.torch.head.stages import number
from densecal.torch.head.state import used_layers


class LinearTemperature(nn.Module):
    """S = sum_l w_l s_l + w_0, over the layers that have a weight."""

    weights: Tensor
    bias: Tensor

    def __init__(self, weights: Any, bias: float, *, squares_distances: bool = False) -> None:
        super().__init__()
        self.squares_distances = squares_distances
        self.register_buffer("weights", number(weights))
        self.register_buffer("bias", number(bias))

    def forward(self, logits: Tensor, distances: Tensor) -> Tensor:
        """Return S of shape (samples,) from distances of shape (samples, layers)."""
        scores = distances * distances if self.squares_distances else distances
        return (scores * self.weights).sum(dim=1) + self.bias

    def learned(self) -> dict[str, Tensor]:
        """Return DAC's learned attributes as they are served."""
        return {"weights_": self.weights, "bias_": self.bias}


class ShiftFittedTemperature(nn.Module):
    """S = w_0 exp(sum_l w_l x_l), x_l the excess distances: that of a DAC fitted with shifted data."""

    weights: Tensor
    bias: Tensor
    knots: Tensor
    coefficients: Tensor
    spread: Tensor

    def __init__(self, dac: DAC) -> None:
        super().__init__()
        self.squares_distances = dac.scores == "published_code"
        self.register_buffer("weights", number(dac.weights_))
        self.register_buffer("bias", number(dac.bias_))
        self.register_buffer("knots", number(dac.excess_knots_))
        self.register_buffer("coefficients", number(dac.excess_coefficients_))
        self.register_buffer("spread", number(dac.excess_spread_))

    def forward(self, logits: Tensor, distances: Tensor) -> Tensor:
        """Return S of shape (samples,) from logits and distances of shape (samples, layers)."""
        scores = distances * distances if self.squares_distances else distances
        top = logits.topk(2, dim=1).values
        measured = torch.stack([top[:, 0] - top[:, 1], top[:, 0] - logits.mean(dim=1)], dim=1)[:, :, None]
        hinged = torch.cat([measured, (measured - self.knots).clamp_min(0)], dim=2).flatten(1)
        expected = self.coefficients[0] + hinged @ self.coefficients[1:]
        excess = ((scores - expected) / self.spread).clamp_min(0)
        return self.bias * (excess * self.weights).sum(dim=1).exp()

    def learned(self) -> dict[str, Tensor]:
        """Return DAC's learned attributes as they are served."""
        excess = {f"excess_{name}_": getattr(self, name) for name in ("knots", "coefficients", "spread")}
        return {"weights_": self.weights, "bias_": self.bias, **excess}


def make_temperature(dac: DAC) -> nn.Module:
    """Return a fitted DAC as a torch module over the layers that have a weight.

    Examples
    --------
    >>> import densecal
    >>> near, far = [[0.1]] * 40, [[0.9]] * 40
    >>> dac = densecal.DAC().fit([[3.0, 0.0]] * 80, [0] * 40 + [0, 1] * 20, distances=near + far)
    >>> near, far = make_temperature(dac)(torch.zeros(2, 2), torch.tensor([[0.1], [0.9]]))
    >>> bool(near < far)
    True
    """
    reduced = dac.reduced_to(used_layers(dac))
    if dac.shift_fitted:
        return ShiftFittedTemperature(reduced)
    return LinearTemperature(reduced.weights_, reduced.bias_, squares_distances=dac.scores == "published_code")
