"""The state of a head's calibrator, without its bank, and its serialisation for a state dict."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from densecal.arrays import to_numpy
from densecal.calibrators.base import Calibrator
from densecal.calibrators.dac import DAC
from densecal.calibrators.state import from_state
from densecal.io.artefacts import CalibratorState, StageState

VALUES = ("learned", "data hashes")
"""What a state dict brings; everything else that it describes must be as in the model that loads it."""


def measured_layers(calibrator: Calibrator) -> tuple[str, ...]:
    """Return the layers whose features the calibrator needs: those with nonzero weight in its DAC."""
    dac = calibrator.density_stage
    if dac is None:
        return ()
    return tuple(layer for layer, weight in zip(dac.layers_, dac.weights_, strict=True) if weight > 0)


def reduced_state(dac: DAC, names: Mapping[str, str]) -> StageState:
    """Return the state of a DAC with only the layers of nonzero weight, renamed."""
    state = dac.reduced_to(measured_layers(dac)).state().stages[0]
    layers = {names.get(layer, layer): share for layer, share in state.learned["layer_importance_"].items()}
    return replace(state, learned={**state.learned, "layers_": list(layers), "layer_importance_": layers})


def dump(state: CalibratorState, k: int | None, centres: list[int] | None) -> Tensor:
    """Return a state without its floating-point arrays, which are buffers, as JSON in a uint8 tensor.

    It is a tensor because some formats of state dicts support only tensors.
    """
    return torch.frombuffer(bytearray(json.dumps(_describe(state, k, centres)).encode()), dtype=torch.uint8)


def load(dumped: Tensor, state: CalibratorState, k: int | None, centres: list[int] | None) -> CalibratorState:
    """Return the state with the values of a dumped state; raise if that belongs to another model."""
    there, here = json.loads(to_numpy(dumped).tobytes()), _describe(state, k, centres)
    for name, value in here.items():
        if name not in VALUES and there[name] != value:
            raise ValueError(
                f"The state dict belongs to another calibrated model: expected {name} {value!r}, got {there[name]!r}."
            )
    pairs = zip(state.stages, there["learned"], strict=True)
    stages = tuple(_with_learned(stage, learned) for stage, learned in pairs)
    return replace(state, stages=stages, data_hashes=there["data hashes"])


def restored(original: Any, buffer: Tensor) -> Any:
    """Return the value of a buffer, or the more precise original if the two agree up to rounding."""
    served = to_numpy(buffer)
    before = np.asarray(to_numpy(original))
    rounding = 2 * float(np.finfo(served.dtype).eps)
    if before.shape == served.shape and np.allclose(before, served, rtol=rounding, atol=0, equal_nan=True):
        return original
    return float(served) if served.ndim == 0 else served.astype(np.float64)


def is_floating(value: object) -> bool:
    """Return whether a value is a float or a floating-point array."""
    return isinstance(value, float) or _is_floating_array(value)


def _is_floating_array(value: object) -> bool:
    return isinstance(value, (np.ndarray, Tensor)) and to_numpy(value).dtype.kind == "f"


def _describe(state: CalibratorState, k: int | None, centres: list[int] | None) -> dict[str, Any]:
    calibrator = from_state(state)
    dac = calibrator.density_stage
    return {
        "method": calibrator.method_name,
        "layers": [] if dac is None else dac.layers_,
        "k =": k,
        "numbers of centres": centres,
        "number of classes": calibrator.n_classes_,
        "DAC's scores": None if dac is None else dac.scores,
        "identity stages": [stage.is_identity_ for stage in calibrator.stages],
        "data hashes": state.data_hashes,
        "learned": [_plain(stage.learned) for stage in state.stages],
    }


def _plain(learned: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in learned.items() if not _is_floating_array(value)}
    arrays = (np.ndarray, np.generic, Tensor)
    return {name: to_numpy(value).tolist() if isinstance(value, arrays) else value for name, value in kept.items()}


def _with_learned(stage: StageState, learned: Mapping[str, Any]) -> StageState:
    changed = {
        name: np.array(value) if isinstance(stage.learned[name], np.ndarray) else value
        for name, value in learned.items()
    }
    return replace(stage, learned={**stage.learned, **changed})
