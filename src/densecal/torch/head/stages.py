"""Fitted stages as torch modules: floating-point values are buffers, and the calibrators' own code runs on them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from densecal.arrays import to_numpy
from densecal.calibrators.dac.excess import adapted_temperatures, shift_temperatures
from densecal.calibrators.registry import METHODS
from densecal.calibrators.solvers.masks import fill_masked, mask_gap
from densecal.calibrators.solvers.temperature_fit import clean_temperatures
from densecal.io.artefacts import StageState
from densecal.torch.head.state import is_floating, restored

EXCESS = ("excess_knots_", "excess_coefficients_", "excess_spread_")
FLOAT32 = ("ts", "ets")
"""Methods with float32 buffers, as the kernel expects; the maps of other methods need full precision."""


class StageModule(nn.Module):
    """A fitted stage; its learned values listed in ``names`` are buffers."""

    def __init__(self, state: StageState, names: Iterable[str] = (), dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.names = tuple(names)
        self.set_state(state)
        for name in self.names:
            # Kernels read C order, but NumPy returns selected columns in Fortran order.
            array = np.array(to_numpy(state.learned[name]), order="C")
            self.register_buffer(name, torch.tensor(array, dtype=dtype))

    def set_state(self, state: StageState) -> None:
        """Set the learned values that are not buffers, such as indices, from a state."""
        self.state = state
        # Python numbers instead of arrays, which tracers do not accept.
        self.plain = {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in state.learned.items()
            if name not in self.names
        }

    def served_state(self) -> StageState:
        """Return the state with the current values of the buffers."""
        served = {name: restored(self.state.learned[name], getattr(self, name)) for name in self.names}
        return replace(self.state, learned={**self.state.learned, **served})


class Temperature(StageModule):
    """DAC's temperature S(x), from logits and distances."""

    weights_: Tensor
    bias_: Tensor
    excess_knots_: Tensor
    excess_coefficients_: Tensor
    excess_spread_: Tensor
    adaptation_: Tensor

    def __init__(self, state: StageState) -> None:
        is_shift_fitted, is_adapted = (state.learned[name] is not None for name in ("excess_spread_", "adaptation_"))
        names = ("weights_", "bias_", *(EXCESS if is_shift_fitted else ()), *(("adaptation_",) if is_adapted else ()))
        super().__init__(state, names, torch.float32)
        self.is_shift_fitted, self.is_adapted = is_shift_fitted, is_adapted
        self.mask_gap = mask_gap(state.learned["plain_temperature_"])
        self.squares_distances = state.params["scores"] == "published_code"

    def forward(self, logits: Tensor, distances: Tensor) -> Tensor:
        """Return S of shape (n_samples,) from distances of shape (n_samples, n_layers)."""
        scores = distances * distances if self.squares_distances else distances
        temperatures: Tensor
        if self.is_shift_fitted:
            excess = (self.excess_knots_, self.excess_coefficients_, self.excess_spread_)
            logits, _ = fill_masked(logits, self.mask_gap)
            temperatures = shift_temperatures(logits, scores, self.weights_, self.bias_, excess)
        else:
            temperatures = clean_temperatures(scores, self.weights_, self.bias_)
        if self.is_adapted:
            temperatures = adapted_temperatures(temperatures, self.adaptation_)
        return temperatures


class Softmax(StageModule):
    """A stage that leaves the logits unchanged."""

    def forward(self, logits: Tensor) -> Tensor:
        """Return softmax(z)."""
        return logits.softmax(dim=-1)


class CalibratorModule(StageModule):
    """A method on logits: the calibrator's own code, applied to tensors."""

    def __init__(self, state: StageState) -> None:
        names = [name for name, value in state.learned.items() if is_floating(value)]
        super().__init__(state, names, torch.float32 if state.method in FLOAT32 else None)
        self.method = METHODS[state.method]

    def forward(self, logits: Tensor) -> Tensor:
        """Return the method's probabilities."""
        # A new object per call, so that no tensor of a tracer is kept.
        method: Any = object.__new__(self.method)
        for name, value in self.plain.items():
            setattr(method, name, value)
        for name in self.names:
            setattr(method, name, getattr(self, name))
        probabilities: Tensor = method._probabilities(logits)
        return probabilities


def make_stage(state: StageState) -> StageModule:
    """Return a fitted method on logits as a module that returns probabilities."""
    return Softmax(state) if state.learned["is_identity_"] else CalibratorModule(state)
