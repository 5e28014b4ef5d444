"""Fingerprints that identify the classifier that a calibrator was fitted for, and a record of it in the model."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from functools import cache
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from densecal.arrays import to_numpy
from densecal.errors import ArtefactError, warn_user
from densecal.torch.wrappers import bare_names, unwrapped

TYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16)
"""From the widest to the narrowest. A tensor is summed in its own dtype and in each narrower one."""
SLAB = 1 << 20
"""Number of values summed at once, which bounds the size of the float64 copy."""
ROUNDING = 1e-9
"""Tolerance between two float64 sums of the same values, in units of the tensor's Euclidean norm."""
TWICE_ROUNDED = 10 * torch.finfo(torch.bfloat16).eps
"""The same for values rounded to float16 and then to bfloat16: their errors add up like a random walk."""
CHANGED = "The classifier has changed since it was calibrated, so its confidences are not calibrated"
Versions = list[tuple[int, int]]


class ClassifierRecord(nn.Module):
    """The fingerprint of a classifier when it was calibrated: now, or if it is ``known``, earlier.

    It is a module, so that a state dict holds the fingerprint beside the weights that it describes.
    """

    def __init__(self, classifier: nn.Module, known: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.fingerprint = fingerprint(classifier) if known is None else dict(known)
        self._checked: tuple[Versions, str | None] | None = (_versions(classifier), None) if known is None else None

    def raise_if_changed(self, classifier: nn.Module) -> None:
        """Raise if the classifier is not the one that was calibrated."""
        difference = differences(self.fingerprint, classifier)
        if difference is not None:
            raise ArtefactError(f"{CHANGED}: {difference}. Calibrate it again, or pass check_classifier=False.")

    def warn_if_changed(self, classifier: nn.Module) -> None:
        """Warn if the classifier is not the one that was calibrated.

        The weights are compared only if torch has changed or replaced a tensor since the last check, so that a check
        for every batch costs little. In-place changes of a tensor's ``.data`` are not detected.
        """
        versions = _versions(classifier)
        if self._checked is None or self._checked[0] != versions:
            self._checked = versions, differences(self.fingerprint, classifier)
        difference = self._checked[1]
        if difference is not None:
            warn_user(f"{CHANGED}: {difference}. Calibrate it again.")

    def get_extra_state(self) -> Tensor:
        """Return the fingerprint as JSON in a tensor of bytes."""
        return torch.frombuffer(bytearray(json.dumps(self.fingerprint).encode()), dtype=torch.uint8)

    def set_extra_state(self, state: Tensor) -> None:
        """Load the fingerprint of the classifier whose weights are in the same state dict."""
        self.fingerprint, self._checked = json.loads(to_numpy(state).tobytes()), None


def _versions(classifier: nn.Module) -> Versions:
    """Return where each tensor is, and how often torch has changed it in place."""
    found = []
    for tensor in chain(classifier.parameters(), classifier.buffers()):
        # Tensors made in inference mode have no version, and sparse ones no address.
        version = -1 if tensor.is_inference() else tensor._version
        found.append((tensor.data_ptr() if tensor.layout is torch.strided else id(tensor), version))
    return found


def fingerprint(model: nn.Module) -> dict[str, Any]:
    """Return a JSON-serialisable fingerprint of a classifier, independent of its device and floating-point dtype.

    Each tensor contributes a randomly weighted sum of its values in each dtype that it may be rounded to.
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
    """Return how a classifier differs from a fingerprint, or None if it does not."""
    if not {"class", "shapes", "sums", "types"} <= expected.keys():
        raise ArtefactError(
            "The fingerprint of the classifier has a format that this version of densecal cannot read. Load the file "
            "with the version that wrote it, or fit again."
        )
    tensors = _tensors(model)
    if _shapes(tensors) != expected["shapes"]:
        return f"it was fitted for a {expected['class']} of another architecture than this {_class_name(model)}"
    changed = _changed_sum(expected, tensors)
    if changed is None:
        return None
    return (
        f"the weights of {changed!r} differ: this {_class_name(model)} was trained further, was rounded to a narrower "
        "dtype and back, or is another model"
    )


def weights_hash(model: nn.Module) -> str:
    """Return the SHA-256 hash of a classifier's weights: names, dtypes, shapes and bytes, in the order of the names."""
    found = hashlib.sha256()
    for name, tensor in sorted(_tensors(model).items()):
        found.update(f"{name} {_type_name(tensor)} {list(tensor.shape)}\n".encode())
        found.update(tensor.cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def _changed_sum(expected: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> str | None:
    for name, (*totals, norm) in _sums(tensors).items():
        then, now = expected["types"].get(name), _type_name(tensors[name])
        # Both lists end with the narrowest dtype, so the widest common dtype is the first of the shorter list.
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
    """Return for each tensor its weighted sums in its own and each narrower dtype, followed by its norm."""
    # The batch counter of a normalisation layer does not affect its output.
    counted = {name: tensor for name, tensor in tensors.items() if not name.endswith("num_batches_tracked")}
    # Tensors on the meta device have no values before a state dict is loaded, which brings its own fingerprint.
    return {name: _weighted_sums(tensor) for name, tensor in counted.items() if tensor.numel() and not tensor.is_meta}


def _values(tensor: Tensor) -> Tensor:
    """Return the values of a tensor as a dense tensor without quantisation; of a sparse tensor, the stored ones."""
    if tensor.is_quantized:
        return tensor.dequantize()
    # A sparse tensor, such as the edges of a graph, may be too large to be made dense.
    return tensor if tensor.layout is torch.strided else tensor.to_sparse().coalesce().values()


def _weighted_sums(tensor: Tensor) -> list[float]:
    tensor = _values(tensor)
    flat = (torch.view_as_real(tensor) if tensor.is_complex() else tensor).flatten()
    if flat.device.type not in ("cpu", "cuda"):
        flat = flat.cpu()  # Other devices may lack float64.
    types = TYPES[TYPES.index(flat.dtype) :] if flat.dtype in TYPES else (flat.dtype,)
    total = torch.zeros(len(types) + 1, dtype=torch.float64, device=flat.device)
    for number, slab in enumerate(torch.split(flat, SLAB)):
        weights = _weights(flat.device)[: len(slab)]
        # A different factor per slab, so that swapped slabs are detected.
        factor = math.cos(number)
        for place, dtype in enumerate(types):
            # Masks of attention are often infinite.
            values = slab.to(dtype).double().nan_to_num(nan=3.0, posinf=5.0, neginf=-7.0)
            total[place] += factor * values.dot(weights)
            if place == 0:
                total[-1] += values.dot(values)
    total[-1].sqrt_()
    return list(total.tolist())


@cache
def _weights(device: torch.device) -> Tensor:
    # NumPy guarantees that the stream of the legacy generator never changes.
    drawn = np.random.RandomState(0).uniform(-1, 1, SLAB)
    return torch.from_numpy(drawn).to(device)
