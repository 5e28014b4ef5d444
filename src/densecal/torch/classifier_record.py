"""ClassifierRecord: which classifier was calibrated, and whether it has changed since."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from densecal.arrays import to_numpy
from densecal.errors import ArtefactError, warn_user
from densecal.torch.fingerprint import differences, fingerprint

Versions = list[tuple[int, int]]


class ClassifierRecord(nn.Module):
    """The fingerprint of a classifier when it was calibrated.

    It is a module, so that a state dict holds the fingerprint beside the weights that it describes.

    Parameters
    ----------
    classifier : nn.Module
        The classifier, with the weights that it was calibrated with unless ``known`` is given.
    known : mapping, optional
        The fingerprint, if the calibration was earlier.
    """

    def __init__(self, classifier: nn.Module, known: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self.fingerprint = fingerprint(classifier) if known is None else dict(known)
        self._checked: tuple[Versions, str | None] | None = None
        if known is None:
            self._checked = _versions(classifier), None

    def raise_if_changed(self, classifier: nn.Module) -> None:
        """Raise if the classifier is not the one that was calibrated."""
        difference = differences(self.fingerprint, classifier)
        if difference is not None:
            raise ArtefactError(
                f"{_describe(difference)} Calibrate it again, or pass check_classifier=False to write it anyway."
            )

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
            warn_user(f"{_describe(difference)} Calibrate it again.")

    def get_extra_state(self) -> Tensor:
        """Return the fingerprint as JSON in a tensor of bytes."""
        return torch.frombuffer(bytearray(json.dumps(self.fingerprint).encode()), dtype=torch.uint8)

    def set_extra_state(self, state: Tensor) -> None:
        """Load the fingerprint of the classifier whose weights are in the same state dict."""
        self.fingerprint, self._checked = json.loads(to_numpy(state).tobytes()), None


def _describe(difference: str) -> str:
    return f"The classifier has changed since it was calibrated, so its confidences are not calibrated: {difference}."


def _versions(classifier: nn.Module) -> Versions:
    """Return where each tensor is, and how often torch has changed it in place."""
    found = []
    for tensor in chain(classifier.parameters(), classifier.buffers()):
        # Tensors made in inference mode have no version, and sparse ones no address.
        version = -1 if tensor.is_inference() else tensor._version
        found.append((tensor.data_ptr() if tensor.layout is torch.strided else id(tensor), version))
    return found
