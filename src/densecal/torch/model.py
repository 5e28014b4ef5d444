"""CalibratedModel: a classifier whose forward gives calibrated probabilities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from densecal.calibrators.base import Calibrator
from densecal.torch.capture import LayerCapture
from densecal.torch.head import CalibrationHead, Details
from densecal.torch.layout import Layout, logits_of

LOGITS = "logits"


class CalibratedModel(nn.Module):
    """A classifier and its calibrator as one module."""

    def __init__(self, classifier: nn.Module, calibrator: Calibrator, layouts: Mapping[str, Layout]) -> None:
        super().__init__()
        self.classifier = classifier
        self.head = CalibrationHead(calibrator)
        read = [layer for layer in self.head.layers if layer != LOGITS]
        self.capture = LayerCapture(classifier, {layer: layouts[layer] for layer in read})

    def forward(self, *inputs: Any, **named: Any) -> Tensor:
        """Return calibrated probabilities of shape (samples, classes)."""
        return self.details(*inputs, **named).probabilities

    def details(self, *inputs: Any, **named: Any) -> Details:
        """Return logits, temperature S(x), distances per layer and probabilities."""
        with self.capture.reading(named.get("attention_mask")) as features:
            logits = logits_of(self.classifier(*inputs, **named))
        read = {**self.capture.ordered(features), LOGITS: logits}
        return self.head.details(logits, [read[layer] for layer in self.head.layers])
