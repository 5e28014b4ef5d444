"""A fingerprint that identifies the classifier that a calibrator was fitted for."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from densecal.errors import ArtefactError
from densecal.torch.wrappers import bare_names, unwrapped

TYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
"""From the longest to the shortest: a tensor is summed in its own type and rounded to each of those after it."""
SLAB = 1 << 20
"""Number of values summed at once, which bounds the size of the float64 copy."""
ROUNDING = 1e-9
"""Tolerance of two float64 sums of the same numbers, in units of the tensor's Euclidean norm."""
TWICE_ROUNDED = 10 * torch.finfo(torch.bfloat16).eps
"""The same for numbers rounded to float16 and then to bfloat16: random weights add such errors like random steps."""


def fingerprint(model: nn.Module) -> dict[str, Any]:
    """Return JSON values that identify this classifier on any device and in any floating type.

    Each tensor contributes a randomly weighted sum of its values, one for each type that it may be rounded to.
    """
    tensors = _tensors(model)
    sums = _sums(tensors)
    return {
        "class": _class_name(model),
        "shapes": _shapes(tensors),
        "sums": {name: [float(f"{total:.13g}") for total in found[:-1]] for name, found in sums.items()},
        "types": {name: _type_name(tensors[name]) for name in sums},
    }


def differences(expected: Mapping[str, Any], model: nn.Module) -> str | None:
    """Describe how a classifier differs from a fingerprint; None if it does not."""
    if not {"class", "shapes", "sums", "types"} <= expected.keys():
        raise ArtefactError(
            "The fingerprint of the classifier is unknown to this version of densecal. Load the file with the version "
            "that wrote it, or fit again."
        )
    tensors = _tensors(model)
    if _shapes(tensors) != expected["shapes"]:
        return f"it was fitted for a {expected['class']} of another architecture than this {_class_name(model)}"
    changed = _changed_sum(expected, tensors)
    if changed is None:
        return None
    return f"the weights of {changed!r} differ: this {_class_name(model)} was trained further, or is another one"


def _changed_sum(expected: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str | None:
    for name, (*totals, norm) in _sums(tensors).items():
        then, now = expected["types"].get(name), _type_name(tensors[name])
        # Both lists end with the shortest type, so the longest that they share is where the shorter one begins.
        shared = min(len(totals), len(expected["sums"].get(name, ())))
        tolerance = TWICE_ROUNDED if {then, now} == {"float16", "bfloat16"} else ROUNDING
        if not shared or not abs(totals[-shared] - expected["sums"][name][-shared]) <= tolerance * norm:
            return name
    return None


def _class_name(model: nn.Module) -> str:
    return type(unwrapped(model)[0]).__name__


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    tensors = {name: tensor.detach() for name, tensor in model.state_dict().items() if isinstance(tensor, Tensor)}
    return {bare: tensors[name] for name, bare in bare_names(model, tensors).items()}


def _shapes(tensors: Mapping[str, Tensor]) -> str:
    shapes = json.dumps({name: list(tensor.shape) for name, tensor in tensors.items()}, sort_keys=True)
    return hashlib.sha256(shapes.encode()).hexdigest()


def _type_name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _sums(tensors: Mapping[str, Tensor]) -> dict[str, list[float]]:
    """Return for every tensor its weighted sum in each type from its own on, and its norm last."""
    # The number of batches that a norm has seen does not affect its output.
    counted = {name: tensor for name, tensor in tensors.items() if not name.endswith("num_batches_tracked")}
    found = {name: _weighted_sums(tensor) for name, tensor in counted.items() if tensor.numel()}
    # One transfer for all: on a GPU each single transfer waits for the device.
    by_device: dict[torch.device, list[str]] = {}
    for name, sums in found.items():
        by_device.setdefault(sums.device, []).append(name)
    fetched: dict[str, list[float]] = {}
    for names in by_device.values():
        together = torch.cat([found[name] for name in names]).tolist()
        for name in names:
            fetched[name], together = together[: len(found[name])], together[len(found[name]) :]
    for name, numbers in fetched.items():
        if not all(map(math.isfinite, numbers)):
            fetched[name] = _weighted_sums(counted[name], finite=True).tolist()
    return {name: fetched[name] for name in found}


def _weighted_sums(tensor: Tensor, *, finite: bool = False) -> Tensor:
    flat = (torch.view_as_real(tensor) if tensor.is_complex() else tensor).flatten()
    if flat.device.type not in ("cpu", "cuda"):
        flat = flat.cpu()  # float64 is not everywhere
    types = TYPES[TYPES.index(flat.dtype) :] if flat.dtype in TYPES else (flat.dtype,)
    total = torch.zeros(len(types) + 1, dtype=torch.float64, device=flat.device)
    for number, slab in enumerate(torch.split(flat, SLAB)):
        weights = _weights(flat.device)[: len(slab)]
        # Another factor for each slab, so that exchanged slabs are noticed.
        factor = math.cos(number)
        for place, dtype in enumerate(types):
            values = slab.to(dtype).double()
            if finite:
                values = values.nan_to_num(nan=3.0, posinf=5.0, neginf=-7.0)
            total[place] += factor * values.dot(weights)
            if place == 0:
                total[-1] += values.dot(values)
    total[-1].sqrt_()
    return total


@cache
def _weights(device: torch.device) -> Tensor:
    # NumPy guarantees that the numbers of the legacy generator never change.
    drawn = np.random.RandomState(0).uniform(-1, 1, SLAB)
    return torch.from_numpy(drawn).to(device)
