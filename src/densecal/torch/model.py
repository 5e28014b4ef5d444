"""CalibratedModel: a classifier whose forward returns calibrated probabilities."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Self

import torch
from torch import Tensor, nn

from densecal.calibrators.base import Calibrator
from densecal.calibrators.dac.unlabelled_batch import with_plain_scaling
from densecal.errors import require
from densecal.estimation.accuracy_estimate import AccuracyEstimate
from densecal.evaluation import EvaluationTable, evaluate_conditions
from densecal.torch.batches import BatchFn, BatchT, device_of
from densecal.torch.features.capture import LayerCapture
from densecal.torch.features.layers import LOGITS
from densecal.torch.features.layout import Layout, logits_of, token_mask, warn_of_missing_mask
from densecal.torch.fingerprint import ClassifierRecord
from densecal.torch.head.head import CalibrationHead, Details
from densecal.torch.head.stages import measured_layers
from densecal.torch.measured_outputs import conditions_of, measured_outputs
from densecal.torch.model_file import read_model, write_model
from densecal.torch.signature import class_with_signature
from densecal.torch.wrappers import (
    check_no_replicas,
    find_layers,
    runs_compiled,
    unwrapped,
)


class CalibratedModel(nn.Module):
    """A classifier and its calibrator as one module: ``forward`` returns calibrated probabilities.

    The bank and the calibrator's parameters are buffers, so ``.to(device)`` and ``state_dict`` work, and
    ``head.half()`` halves the memory of the bank. Layers with zero weight have neither a hook nor a bank. For small
    batches on a GPU, ``head.compile(mode="reduce-overhead")`` replaces the kernel launches of the head by one.
    Calibrate again if the classifier was trained further: estimates and ``save`` notice it, ``forward`` does not.

    Parameters
    ----------
    classifier : nn.Module
        A classifier that returns logits, in the forms of :func:`~densecal.torch.extract`.
    calibrator : Calibrator
        A calibrator fitted on the classifier's outputs. If its first stage is DAC, it must have its bank.
    layouts : mapping of str to Layout
        The layout of each layer, as determined by :func:`~densecal.torch.calibrate`.
    choices : mapping of str to str, optional
        Settings chosen during calibration; shown by ``repr``.
    fingerprint : mapping, optional
        The fingerprint of the calibrated classifier in ``record``; by default that of its present weights.

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
        fingerprint: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__()
        # The head is registered first, so that a state dict that it rejects does not change the classifier.
        measured = [layer for layer in measured_layers(calibrator) if layer != LOGITS]
        found = find_layers(classifier, {*layouts, *measured} - {LOGITS})
        self.head = CalibrationHead(calibrator, names={layer: bare for layer, (bare, _) in found.items()})
        self.record = ClassifierRecord(classifier, fingerprint)
        self.classifier = classifier
        self.choices = dict(choices or {})
        known = {found[layer][0]: layout for layer, layout in layouts.items() if layer != LOGITS}
        places = dict(found[layer] for layer in measured)
        missing = [layer for layer in places if layer not in known]
        if missing:
            raise ValueError(f"layouts lacks the layers {missing}, which the calibrator needs. Add a Layout for each.")
        if places:
            check_no_replicas(classifier)
        self.layouts = {layer: known[layer] for layer in places}
        self.capture = LayerCapture(classifier, {place: known[layer] for layer, place in places.items()})
        self._masked = [layer for layer, layout in self.layouts.items() if layout.masked]
        self.eval()
        if type(self) is CalibratedModel:
            self.__class__ = class_with_signature(*_class_arguments(classifier))

    @property
    def layers(self) -> tuple[str, ...]:
        """Names of the measured layers: those with nonzero weight."""
        return self.head.layers

    @property
    def calibrator(self) -> Calibrator:
        """The fitted calibrator; DAC has only the layers with nonzero weight, and no bank."""
        return self.head.calibrator

    def forward(self, *args: object, **kwargs: object) -> Tensor:
        """Return calibrated float32 probabilities of shape (n_samples, n_classes).

        The arguments are the classifier's. Use ``torch.inference_mode()``: gradients treat the distances as constants.
        """
        return self._predict(args, kwargs)[1]

    def predict_proba(self, *args: object, **kwargs: object) -> Tensor:
        """Return the calibrated probabilities, for Hugging Face models too, whose ``forward`` returns more."""
        return self._predict(args, kwargs)[1]

    def train(self, mode: bool = True) -> Self:
        """Set the training mode of the classifier; ``forward`` requires evaluation mode."""
        super().train(mode)
        # Cached, because traversing the module tree for every batch is twenty times slower.
        self._parts = list(self.classifier.modules())
        return self

    def details(self, *args: object, **kwargs: object) -> Details:
        """Return the logits, temperatures S(x), distances per layer and calibrated probabilities."""
        return self.head.details(*self._run(args, kwargs)[1:])

    def _predict(self, args: tuple[object, ...], kwargs: dict[str, object]) -> tuple[object, Tensor]:
        """Run the classifier; return its output and the calibrated probabilities."""
        output, logits, features = self._run(args, kwargs)
        probabilities: Tensor = self.head(logits, features)
        # A head compiled with CUDA graphs overwrites its output in the next call.
        return output, probabilities.clone() if runs_compiled(self.head) else probabilities

    def evaluate(
        self,
        loaders: Iterable[BatchT] | Mapping[str, Iterable[BatchT]],
        *,
        batch_fn: BatchFn[BatchT] | None = None,
        severity_from_names: bool = True,
        natural: Collection[str] = (),
        progress: bool = False,
    ) -> EvaluationTable:
        """Evaluate the classifier on labelled data: uncalibrated, calibrated, and with temperature scaling if known.

        Parameters
        ----------
        loaders : iterable of batches, or mapping of str to such
            One test set, or several with their names.
        batch_fn, progress : optional
            As in :func:`~densecal.torch.extract`.
        severity_from_names : bool, default True
            Read severities from names such as ``"fog-3"``, as in :func:`~densecal.evaluation.read_conditions`.
        natural : collection of str, optional
            The names of loaders under a natural shift, of unknown severity, which are never averaged with others.
        """
        conditions = conditions_of(
            self,
            loaders,
            batch_fn=batch_fn,
            severity_from_names=severity_from_names,
            natural=natural,
            progress=progress,
        )
        return evaluate_conditions(with_plain_scaling(self.calibrator), conditions)

    def report(
        self,
        loaders: Iterable[BatchT] | Mapping[str, Iterable[BatchT]],
        path: str | Path,
        *,
        title: str = "Can these confidences be trusted?",
        batch_fn: BatchFn[BatchT] | None = None,
        severity_from_names: bool = True,
        natural: Collection[str] = (),
        progress: bool = False,
    ) -> EvaluationTable:
        """Write an HTML report of ``evaluate``, with the same arguments, and return the evaluation.

        ``path`` is the HTML file to write, ``title`` the title of the page.
        """
        from densecal.report import write_report

        if isinstance(loaders, (str, Path)):
            raise TypeError(f"The loaders come before the path: report(loaders, {str(loaders)!r}).")
        table = self.evaluate(
            loaders, batch_fn=batch_fn, severity_from_names=severity_from_names, natural=natural, progress=progress
        )
        return write_report(path, with_plain_scaling(self.calibrator), (), title=title, table=table)

    def estimate_accuracy(
        self, loader: Iterable[BatchT], *, batch_fn: BatchFn[BatchT] | None = None, progress: bool = False
    ) -> AccuracyEstimate:
        """Estimate the accuracy of the classifier on a loader of unlabelled data; labels are ignored.

        The estimate is learned by :func:`~densecal.torch.calibrate` from perturbed or shifted data. The data must not
        be selected by confidence or class. ``batch_fn`` is as in :func:`~densecal.torch.extract`.
        """
        return self.calibrator.estimate_accuracy(measured_outputs(self, loader, batch_fn=batch_fn, progress=progress))

    def adapted_to(
        self, loader: Iterable[BatchT], *, batch_fn: BatchFn[BatchT] | None = None, progress: bool = False
    ) -> CalibratedModel:
        """Return a model of the same classifier that is calibrated for unlabelled data.

        The arguments are those of ``estimate_accuracy``, and the calibration is that of ``Calibrator.adapted_to``.
        """
        measured = measured_outputs(self, loader, batch_fn=batch_fn, progress=progress)
        state = replace(self.calibrator.adapted_to(measured).state(), bank=self.head.bank_state())
        calibrator, known = Calibrator.from_state(state), self.record.fingerprint
        choices = {**self.choices, "adapted": f"to {len(measured):,} unlabelled samples"}
        model = CalibratedModel(self.classifier, calibrator, self.layouts, choices=choices, fingerprint=known)
        model.head.to(next(self.head.buffers()).device)
        return model

    def _run(self, args: tuple[object, ...], kwargs: dict[str, object]) -> tuple[object, Tensor, list[Tensor]]:
        """Run the classifier; return its output, its logits and the features of the measured layers."""
        # Four times as fast as a comprehension, which takes 60 us of each batch of a ResNet152.
        if any(map(attrgetter("training"), self._parts)):
            raise RuntimeError(
                "The classifier, or a part of it, is in training mode, but it was calibrated in evaluation mode. Call "
                ".eval() first. To train further, train the classifier itself, and calibrate it again."
            )
        mask = token_mask(self.classifier, args, kwargs)
        if mask is None and not torch.compiler.is_compiling() and self._masked:
            warn_of_missing_mask(self._masked)
            self._masked = []  # Warn once per model.
        with self.capture.reading(mask) as features:
            output = self.classifier(*args, **kwargs)
            logits = logits_of(output)
        if len(features) < len(self.layouts) and any(map(runs_compiled, self.classifier.modules())):
            raise RuntimeError(
                "The compiled classifier ran before it was calibrated, so its compiled code ignores the new hooks. "
                "Call torch.compiler.reset() once, or calibrate first and compile afterwards."
            )
        read = dict(zip(self.layouts, self.capture.ordered(features).values(), strict=True))
        read[LOGITS] = logits
        return output, logits, [read[layer] for layer in self.head.layers]

    def extra_repr(self) -> str:
        """Return the settings chosen during calibration, one per line."""
        return "\n".join(f"{name}: {choice}" for name, choice in self.choices.items())

    def save(self, path: str | Path, *, half_precision_bank: bool = False, check_classifier: bool = True) -> None:
        """Save the calibrator, its bank and a fingerprint of the classifier, but not the classifier, to one file.

        :func:`densecal.load` reads the calibrator from the same file. ``half_precision_bank`` is as in
        ``Calibrator.save``. If the weights have changed since the calibration, except by a move to a device or dtype,
        an error is raised, unless ``check_classifier`` is False.
        """
        write_model(path, self, half_precision_bank=half_precision_bank, check_classifier=check_classifier)

    @classmethod
    def load(cls, path: str | Path, classifier: nn.Module, *, check_classifier: bool = True) -> Self:
        """Load a file written by ``save`` and attach its calibrator to the classifier that it was fitted for.

        The classifier may be on any device and in any floating-point dtype. Another one is an error, unless
        ``check_classifier`` is False.
        """
        model = cls(classifier, **read_model(path, classifier, check_classifier=check_classifier))
        model.head.to(device_of(classifier))
        return model

    @classmethod
    def from_pretrained(
        cls, source: str | Path, *, check_classifier: bool = True, **options: object
    ) -> CalibratedModel:
        """Load a calibrated Hugging Face model from a folder or from the Hub, as ``save_pretrained`` wrote it.

        ``check_classifier`` is as in ``load``; ``options`` are passed to ``from_pretrained`` of the classifier's class.
        """
        require("transformers", "hf", "from_pretrained")
        from densecal.integrations.huggingface import from_pretrained

        return from_pretrained(source, check_classifier=check_classifier, **options)


def _class_arguments(classifier: nn.Module) -> tuple[type, type, str]:
    """Return the base, the classifier's class and the name of the class of a calibrated model."""
    bare = unwrapped(classifier)[0]
    wrapped: type = type(bare)
    transformers = sys.modules.get("transformers")  # A model of transformers has imported it.
    if transformers is None or not isinstance(bare, transformers.PreTrainedModel):
        return CalibratedModel, wrapped, CalibratedModel.__name__
    from densecal.integrations.huggingface import CalibratedPreTrainedModel

    # Pipelines look the name up among the classes that they support.
    return CalibratedPreTrainedModel, wrapped, wrapped.__name__
