"""Fitted stages as torch modules: floating-point values are buffers, and the calibrators' own code runs on them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from densecal.arrays import to_numpy
from densecal.calibrators.base import Calibrator
from densecal.calibrators.dac import DAC
from densecal.calibrators.registry import METHODS
from densecal.calibrators.solvers.masks import mask_gap
from densecal.io.artefacts import StageState

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

    def dump(self) -> dict[str, Any]:
        """Return the learned values for JSON, without floating-point arrays, which are buffers."""
        arrays = (np.ndarray, np.generic, Tensor)
        return {
            name: to_numpy(value).tolist() if isinstance(value, arrays) else value
            for name, value in self.state.learned.items()
            if not _is_floating_array(value)
        }

    def load(self, dumped: Mapping[str, Any]) -> None:
        """Set the learned values that `dump` of another module of this class returned."""
        learned = dict(self.state.learned)
        for name, value in dumped.items():
            learned[name] = np.array(value) if isinstance(learned[name], np.ndarray) else value
        self.set_state(replace(self.state, learned=learned))

    def served_state(self) -> StageState:
        """Return the state with the current values of the buffers."""
        served = {name: _restored(self.state.learned[name], getattr(self, name)) for name in self.names}
        return replace(self.state, learned={**self.state.learned, **served})

    def _calibrator(self) -> Any:
        """Return a new calibrator whose learned values are the buffers. It is not kept, since a tracer may own them."""
        method: Any = object.__new__(METHODS[self.state.method])
        for name, value in self.plain.items():
            setattr(method, name, value)
        for name in self.names:
            setattr(method, name, getattr(self, name))
        return method


class Temperature(StageModule):
    """DAC's temperature S(x), from logits and distances."""

    weights_: Tensor
    bias_: Tensor

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
        temperatures: Tensor = self._calibrator()._temperatures(logits, scores)
        return temperatures


class Softmax(StageModule):
    """A stage that leaves the logits unchanged."""

    def forward(self, logits: Tensor) -> Tensor:
        """Return softmax(z)."""
        return logits.softmax(dim=-1)


class CalibratorModule(StageModule):
    """A method on logits."""

    def __init__(self, state: StageState) -> None:
        names = [name for name, value in state.learned.items() if isinstance(value, float) or _is_floating_array(value)]
        super().__init__(state, names, torch.float32 if state.method in FLOAT32 else None)

    def forward(self, logits: Tensor) -> Tensor:
        """Return the method's probabilities."""
        probabilities: Tensor = self._calibrator()._probabilities(logits)
        return probabilities


def make_stage(state: StageState) -> StageModule:
    """Return a fitted method on logits as a module that returns probabilities."""
    return Softmax(state) if state.learned["is_identity_"] else CalibratorModule(state)


def measured_layers(calibrator: Calibrator) -> tuple[str, ...]:
    """Return the layers whose features the calibrator needs: those with nonzero weight in its DAC.

    If all weights are zero and the calibrator estimates accuracies, these are all layers: the estimates need the drift.
    """
    dac = calibrator.density_stage
    if dac is None:
        return ()
    used = tuple(layer for layer, weight in zip(dac.layers_, dac.weights_, strict=True) if weight > 0)
    return used or (tuple(dac.layers_) if dac.accuracy_model_ is not None and dac.bank is not None else ())


def reduced_state(dac: DAC, names: Mapping[str, str]) -> StageState:
    """Return the state of a DAC with only the measured layers, renamed."""
    state = dac.reduced_to(measured_layers(dac)).state().stages[0]
    layers = {names.get(layer, layer): share for layer, share in state.learned["layer_importance_"].items()}
    return replace(state, learned={**state.learned, "layers_": list(layers), "layer_importance_": layers})


def _is_floating_array(value: object) -> bool:
    return isinstance(value, (np.ndarray, Tensor)) and to_numpy(value).dtype.kind == "f"


def _restored(original: Any, buffer: Tensor) -> Any:
    """Return the value of a buffer, or the more precise original if the two agree up to rounding."""
    served = to_numpy(buffer)
    before = np.asarray(to_numpy(original))
    rounding = 2 * float(np.finfo(served.dtype).eps)
    if before.shape == served.shape and np.allclose(before, served, rtol=rounding, atol=0, equal_nan=True):
        return original
    return float(served) if served.ndim == 0 else served.astype(np.float64)
