"""The calibrator that a head serves: without its bank, which is a buffer, and with what a state dict says of it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor

from densecal.arrays import to_numpy
from densecal.calibrators.base import Calibrator
from densecal.calibrators.chain import Chain
from densecal.calibrators.dac import DAC
from densecal.density.bank import FeatureBank

NAMES = {
    "method": "method",
    "layers": "layers",
    "k": "k =",
    "classes": "number of classes",
    "scores": "DAC's scores",
    "shift_fitted": "DAC fitted with shifted data:",
    "identities": "stages that leave the logits as they are:",
}
"""What two heads must share before the one's numbers mean anything in the other."""


def stages_of(calibrator: Calibrator) -> list[Calibrator]:
    """Return a chain's stages, or the one calibrator.

    Examples
    --------
    >>> import densecal
    >>> [stage.short_name for stage in stages_of(densecal.make_calibrator("ts"))]
    ['ts']
    """
    return list(calibrator.stages if isinstance(calibrator, Chain) else (calibrator,))


def used_layers(dac: DAC) -> tuple[str, ...]:
    """Return the layers that have a weight, in the order of the fit."""
    return tuple(layer for layer, weight in zip(dac.layers_, dac.weights_, strict=True) if weight > 0)


def layers_read(calibrator: Calibrator) -> tuple[str, ...]:
    """Return the layers whose features the calibrator needs: those of its DAC that have a weight."""
    first = stages_of(calibrator)[0]
    return used_layers(first) if isinstance(first, DAC) else ()


def without_bank(calibrator: Calibrator, names: Mapping[str, str]) -> Calibrator:
    """Return the calibrator with DAC reduced to the layers that have a weight, renamed, and without its bank."""
    first, *later = stages_of(calibrator)
    if isinstance(first, DAC):
        first = first.reduced_to(used_layers(first))
        first.layers_ = [names.get(layer, layer) for layer in first.layers_]
        shares = first.layer_importance_.items()
        first.layer_importance_ = {names.get(layer, layer): share for layer, share in shares}
    return with_stages(calibrator, [first, *later])


def with_bank(calibrator: Calibrator, bank: FeatureBank | None) -> Calibrator:
    """Return the calibrator with a bank for its DAC, if there is one."""
    if bank is None:
        return calibrator
    dac, *later = stages_of(calibrator)
    dac = copy(dac).set_params(bank=bank)
    return with_stages(calibrator, [dac, *later])


def with_stages(calibrator: Calibrator, stages: Sequence[Calibrator]) -> Calibrator:
    """Return what the calibrator is, a chain or a single method, of other stages."""
    if not isinstance(calibrator, Chain):
        return stages[0]
    chain = Chain(*stages)
    chain.n_classes_ = calibrator.n_classes_
    return chain


def describe(calibrator: Calibrator, k: int | None) -> Tensor:
    """Return, as bytes of JSON, what the calibrator is and what it learned beside its arrays.

    Bytes in a tensor, since some formats of state dicts hold nothing else.

    Examples
    --------
    >>> import densecal
    >>> scaling = densecal.TemperatureScaling().fit([[4.0, 0.0]] * 4, [0, 0, 0, 1])
    >>> read(describe(scaling, k=None))["method"]
    'ts'
    """
    stages = stages_of(calibrator)
    dac = next((stage for stage in stages if isinstance(stage, DAC)), None)
    description = {
        "method": calibrator.short_name,
        "layers": [] if dac is None else dac.layers_,
        "k": k,
        "classes": calibrator.n_classes_,
        "scores": None if dac is None else dac.scores,
        "shift_fitted": dac is not None and dac.shift_fitted,
        "identities": [stage.is_identity_ for stage in stages],
        "metadata": [_facts(stage) for stage in stages],
    }
    return torch.frombuffer(bytearray(json.dumps(description).encode()), dtype=torch.uint8)


def read(description: Tensor) -> dict[str, Any]:
    """Return what ``describe`` wrote."""
    read: dict[str, Any] = json.loads(to_numpy(description).tobytes())
    return read


def adopt(calibrator: Calibrator, k: int | None, description: Tensor) -> Calibrator:
    """Return the calibrator with the metadata of a description, or refuse one of another kind.

    Examples
    --------
    >>> import densecal
    >>> scaling = densecal.TemperatureScaling().fit([[4.0, 0.0]] * 4, [0, 0, 0, 1])
    >>> vector = densecal.VectorScaling().fit([[4.0, 0.0]] * 4, [0, 0, 0, 1])
    >>> adopt(vector, None, describe(scaling, None))
    Traceback (most recent call last):
    ValueError: This state dict belongs to another calibrated model: method 'ts' there, 'vs' here.
    """
    there, here = read(description), read(describe(calibrator, k))
    for key, name in NAMES.items():
        if there[key] != here[key]:
            raise ValueError(
                f"This state dict belongs to another calibrated model: {name} {there[key]!r} there, {here[key]!r} here."
            )
    stages = [
        _with_facts(stage, metadata) for stage, metadata in zip(stages_of(calibrator), there["metadata"], strict=True)
    ]
    return with_stages(calibrator, stages)


def restored(original: Any, buffer: Tensor) -> Any:
    """Return a learned value as a buffer has it, with all the original's digits as long as they are the same number.

    Examples
    --------
    >>> restored(0.1, torch.tensor(0.1)), restored(0.1, torch.tensor(0.5))
    (0.1, 0.5)
    """
    served = to_numpy(buffer)
    before = np.asarray(to_numpy(original))
    rounding = 2 * float(np.finfo(served.dtype).eps)
    if before.shape == served.shape and np.allclose(before, served, rtol=rounding, atol=0, equal_nan=True):
        return original
    return float(served) if served.ndim == 0 else served.astype(np.float64)


def _facts(stage: Calibrator) -> dict[str, Any]:
    metadata = {name: value for name, value in vars(stage).items() if name.endswith("_") and not name.startswith("_")}
    return {name: _plain(value) for name, value in metadata.items() if not _is_float_array(value)}


def _is_float_array(value: Any) -> bool:
    return isinstance(value, (np.ndarray, Tensor)) and to_numpy(value).dtype.kind == "f"


def _plain(value: Any) -> Any:
    return to_numpy(value).tolist() if isinstance(value, (np.ndarray, np.generic, Tensor)) else value


def _with_facts(stage: Calibrator, metadata: Mapping[str, Any]) -> Calibrator:
    stage = copy(stage)
    for name, value in metadata.items():
        is_array = isinstance(getattr(stage, name, None), np.ndarray)
        setattr(stage, name, np.array(value) if is_array else value)
    return stage
