"""CalibratedModel: a classifier whose forward gives calibrated probabilities."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from torch import Tensor, nn

from densecal.calibrators.base import Calibrator
from densecal.density.bank import FeatureBank
from densecal.errors import ArtefactError
from densecal.io import storage
from densecal.io.artefact import FORMAT, load, save_calibrator
from densecal.torch.features.capture import LayerCapture
from densecal.torch.features.layers import LOGITS
from densecal.torch.features.layout import Layout, logits_of
from densecal.torch.features.masks import token_mask
from densecal.torch.fingerprint import differences, fingerprint
from densecal.torch.head.head import CalibrationHead, Details
from densecal.torch.head.state import layers_read, with_bank
from densecal.torch.wrappers import check_no_replicas, find_layers, runs_compiled


class CalibratedModel(nn.Module):
    """A classifier and its calibrator as one module: ``forward`` gives calibrated probabilities.

    The bank and the calibrator's parameters are buffers, so ``.to(device)`` and ``state_dict`` work, and
    ``head.half()`` keeps the bank in half the memory. Layers whose weight is zero have neither a hook nor a bank.
    Where the batches are small and the host is busier than the GPU, ``head.compile(mode="reduce-overhead")`` makes one
    launch of the calibration's many.

    Parameters
    ----------
    classifier : nn.Module
        Returns logits: a tensor, a tuple, a dict with ``"logits"`` or an object with ``.logits``.
    calibrator : Calibrator
        Fitted on the classifier's outputs, with the bank if it begins with DAC.
    layouts : mapping of str to Layout
        How to pool each layer; :func:`~densecal.torch.calibrate` finds them.
    choices : mapping of str to str, optional
        What was chosen on the way here, and why; shown by ``repr``.

    Examples
    --------
    >>> import densecal, torch
    >>> scaling = densecal.TemperatureScaling().fit([[4.0, 0.0]] * 4, [0, 0, 0, 1])
    >>> model = CalibratedModel(nn.Identity(), scaling, layouts={})
    >>> model(torch.tensor([[4.0, 0.0]])).round(decimals=3)
    tensor([[0.7500, 0.2500]])
    """

    def __init__(
        self,
        classifier: nn.Module,
        calibrator: Calibrator,
        layouts: Mapping[str, Layout],
        *,
        choices: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__()
        # The head comes first, so that a state dict it refuses has not changed the classifier yet.
        found = find_layers(classifier, {layer for layer in (*layouts, *layers_read(calibrator)) if layer != LOGITS})
        self.head = CalibrationHead(calibrator, names={layer: bare for layer, (bare, _) in found.items()})
        self.classifier = classifier
        self.choices = dict(choices or {})
        by_layer = {found[layer]: layout for layer, layout in layouts.items() if layer != LOGITS}
        read = [found[layer] for layer in layers_read(calibrator) if layer != LOGITS]
        missing = [bare for bare, place in read if (bare, place) not in by_layer]
        if missing:
            raise ValueError(f"layouts lacks the layers {missing}, which the calibrator measures.")
        if read:
            check_no_replicas(classifier)
        self.layouts = {bare: by_layer[bare, place] for bare, place in read}
        self.capture = LayerCapture(classifier, {place: self.layouts[bare] for bare, place in read})
        self.eval()

    @property
    def layers(self) -> tuple[str, ...]:
        """The layers that are measured: those with a weight."""
        return self.head.layers

    @property
    def calibrator(self) -> Calibrator:
        """The calibrator as it is served, with DAC reduced to the layers that have a weight and without its bank."""
        return self.head.calibrator

    def forward(self, *inputs: Any, **named: Any) -> Tensor:
        """Return calibrated probabilities, float32, of shape (samples, classes).

        Parameters
        ----------
        *inputs, **named :
            What the classifier takes. Run it under ``torch.inference_mode()`` and, if wanted, autocast.
        """
        probabilities: Tensor = self.head(*self._read(*inputs, **named))
        # A head compiled into a CUDA graph writes its next answer over this one.
        return probabilities.clone() if runs_compiled(self.head) else probabilities

    def train(self, mode: bool = True) -> Self:
        """Set the mode of the classifier; it answers in evaluation mode only."""
        super().train(mode)
        # Walking the tree for every batch would cost twenty times as much as looking at the list.
        self._parts = list(self.classifier.modules())
        return self

    def details(self, *inputs: Any, **named: Any) -> Details:
        """Return logits, temperature S(x), distances per layer and probabilities."""
        return self.head.details(*self._read(*inputs, **named))

    def _read(self, *inputs: Any, **named: Any) -> tuple[Tensor, list[Tensor]]:
        """Run the classifier; return its logits and the features of the layers that are measured."""
        if any(module.training for module in self._parts):
            raise RuntimeError(
                "The classifier, or a part of it, is in training mode, in which dropout and batch norm change its "
                "outputs; the calibration holds for evaluation mode. Call .eval() first."
            )
        with self.capture.reading(token_mask(self.classifier, inputs, named)) as features:
            logits = logits_of(self.classifier(*inputs, **named))
        if len(features) < len(self.layouts) and any(map(runs_compiled, self.classifier.modules())):
            raise RuntimeError(
                "The compiled classifier ran before it was calibrated, and torch.compile does not notice that its "
                "layers are read now. Call torch.compiler.reset() once, or calibrate the classifier first and compile "
                "the result."
            )
        read = dict(zip(self.layouts, self.capture.ordered(features).values(), strict=True))
        read[LOGITS] = logits = logits.float()
        return logits, [read[layer] for layer in self.head.layers]

    def extra_repr(self) -> str:
        """Say what was chosen."""
        return "\n".join(f"{name}: {choice}" for name, choice in self.choices.items())

    def save(self, path: str | Path, *, half_precision_bank: bool = False) -> None:
        """Write the calibrator, its bank and a fingerprint of the classifier to one file; not the classifier itself.

        The file is the core's: :func:`densecal.load` reads it too.
        """
        layouts = {layer: [layout.channels, layout.samples] for layer, layout in self.layouts.items()}
        metadata = {"classifier": fingerprint(self.classifier), "layouts": layouts, "choices": self.choices}
        calibrator = with_bank(self.calibrator, self._bank())
        save_calibrator(calibrator, path, half_precision_bank=half_precision_bank, metadata=metadata)

    @classmethod
    def load(cls, path: str | Path, classifier: nn.Module, *, check_classifier: bool = True) -> Self:
        """Read what ``save`` wrote and put it on a classifier.

        Parameters
        ----------
        path : str or Path
            The file.
        classifier : nn.Module
            The classifier that it was fitted for, on any device and in any floating type.
        check_classifier : bool, default True
            Refuse another classifier than that one.
        """
        calibrator = load(path)
        metadata = storage.read(path, FORMAT)[0].get("metadata", {})
        if "layouts" not in metadata:
            raise ArtefactError(
                f"{path} holds a calibrator that was saved without a model, so it does not say how to read the layers. "
                "Use densecal.torch.calibrate, or CalibratedModel(classifier, calibrator, layouts)."
            )
        difference = differences(metadata["classifier"], classifier) if check_classifier else None
        if difference is not None:
            raise ArtefactError(
                f"{path} does not belong to this classifier: {difference}. Pass check_classifier=False if it does."
            )
        layouts = {layer: Layout(channels, samples) for layer, (channels, samples) in metadata["layouts"].items()}
        model = cls(classifier, calibrator, layouts, choices=metadata.get("choices"))
        model.head.to(next((parameter.device for parameter in classifier.parameters()), "cpu"))
        return model

    def _bank(self) -> FeatureBank | None:
        search = self.head.search
        if search is None:
            return None
        banks = [bank.float().cpu().numpy() for bank in search.banks()]
        return FeatureBank(dict(zip(self.layers, banks, strict=True)), k=search.ks[0])
