"""A fingerprint of a classifier, to tell whether it is the one that a calibrator was fitted for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

SAMPLED_TENSORS = 32
VALUES_PER_TENSOR = 4
WRAPPER_PREFIXES = ("_orig_mod.", "module.")
"""What torch.compile and the data-parallel wrappers put before every name."""


def fingerprint(model: nn.Module) -> dict[str, Any]:
    """Return JSON values that tell this classifier from others, whatever its device and floating type.

    Examples
    --------
    >>> model = nn.Linear(2, 3)
    >>> differences(fingerprint(model), model.half())
    """
    tensors = _tensors(model)
    shapes = json.dumps({name: list(tensor.shape) for name, tensor in tensors.items()}, sort_keys=True)
    names = sorted(name for name, tensor in tensors.items() if tensor.is_floating_point() and tensor.numel())
    step = max(1, len(names) // SAMPLED_TENSORS)
    values = {name: _sample(tensors[name]) for name in names[::step]}
    return {
        "class": type(model).__name__,
        "shapes": hashlib.sha256(shapes.encode()).hexdigest(),
        "values": {name: sample.double().tolist() for name, sample in values.items()},
        "types": {name: str(sample.dtype).removeprefix("torch.") for name, sample in values.items()},
    }


def differences(expected: Mapping[str, Any], model: nn.Module) -> str | None:
    """Return in words how a classifier differs from a fingerprint, or None if it does not."""
    here = fingerprint(model)
    if here["shapes"] != expected["shapes"]:
        return f"it was fitted for a {expected['class']} of another architecture than this {here['class']}"
    tensors = _tensors(model)
    for name, values in expected["values"].items():
        then = torch.tensor(values, dtype=torch.float64).to(getattr(torch, expected["types"][name]))
        now = _sample(tensors[name]).cpu()
        # Converting to half precision keeps the classifier: compare in the shorter of the two types.
        shorter = min(then.dtype, now.dtype, key=lambda dtype: torch.finfo(dtype).bits)
        same = torch.isclose(then.to(shorter).double(), now.to(shorter).double(), rtol=torch.finfo(shorter).eps, atol=0)
        if not bool(same.all()):
            return f"the weights of {name!r} differ: this {here['class']} was trained further, or is another"
    return None


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for name, tensor in model.state_dict().items():
        for prefix in WRAPPER_PREFIXES:
            name = name.replace(prefix, "") if name.startswith(prefix) else name
        tensors[name] = tensor
    return tensors


def _sample(tensor: Tensor) -> Tensor:
    flat = tensor.detach().flatten()
    positions = torch.linspace(0, flat.numel() - 1, min(VALUES_PER_TENSOR, flat.numel())).long()
    return flat[positions.to(flat.device)].cpu()
