"""extract: run a classifier over a loader and keep its logits, labels and pooled layer features."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from densecal.arrays.checks import FEW_ROWS, check_labels
from densecal.display import track
from densecal.io.output_files import FEATURE_PREFIX
from densecal.outputs import Outputs
from densecal.torch.batches import USE_BATCH_FN, Batch, BatchFn, BatchT, device_of, split_batches
from densecal.torch.features.capture import LayerCapture, evaluating, on_device, uncompiled
from densecal.torch.features.layers import LOGITS, LayerChoice, layouts_of, select_from
from densecal.torch.features.layout import Layout, logits_of, raw_logits_of, token_mask, warn_of_padding
from densecal.torch.features.trace import trace
from densecal.torch.loaders import check_loader
from densecal.torch.wrappers import check_module

Piece = dict[str, Tensor]
"""The results of one batch: ``logits``, ``labels`` (if any) and ``features/LAYER``."""
ONE_LOGIT = (
    "The classifier returns one number per sample, which is read as the logit of a binary classifier, so there are two "
    "classes. For more classes return the logits of shape (n_samples, n_classes), not the predicted classes."
)


def extract(
    model: nn.Module,
    loader: Iterable[BatchT],
    layers: LayerChoice = "auto",
    *,
    batch_fn: BatchFn[BatchT] | None = None,
    device: torch.device | str | None = None,
    autocast: torch.dtype | None = None,
    feature_dtype: torch.dtype = torch.float32,
    progress: bool = True,
) -> Outputs:
    """Run a classifier over a loader and return logits, labels and pooled layer features as NumPy arrays.

    Each layer's output is averaged over space or tokens as soon as the layer has run, so no feature map is kept. The
    model runs in evaluation mode. Afterwards its mode is restored and its hooks are removed.

    Parameters
    ----------
    model : nn.Module
        A classifier that returns logits: a tensor, a tuple, a dict with ``"logits"`` or an object with ``.logits``. One
        logit z per sample, as for ``BCEWithLogitsLoss``, counts as the two logits (0, z).
        Compiled models run uncompiled, so that their layers can be read.
    loader : iterable of batches
        Each batch is a tensor of inputs, a tuple (inputs, labels), or a mapping with ``"labels"`` or ``"label"`` whose
        other items are passed to ``forward`` by name. Labels may be absent.
    layers : "auto", "paper", "all", "logits", sequence of str, or mapping of str to Layout or None
        As in :func:`~densecal.torch.select_layers`.
    batch_fn : callable, optional
        For other batches: a function that maps a batch to (args, kwargs, labels), the arguments of ``forward`` and the
        labels or None, such as ``lambda batch: ((batch["inputs"],), {}, batch["labels"])``.
    device : torch.device or str, optional
        Device to run on; by default the model's device.
    autocast : torch.dtype, optional
        Dtype of mixed precision, such as ``torch.bfloat16``. Features are averaged in float32.
    feature_dtype : torch.dtype
        Dtype of the features; ``torch.float16`` halves their memory. Logits are always float32.
    progress : bool, default True
        Show a progress bar in a terminal.

    Examples
    --------
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> extract(model, [(torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1]))])
    Outputs(5 samples, 3 classes, labels, features {1: 8, logits: 3})
    """
    run = Extraction(model, layers, batch_fn=batch_fn, device=device, autocast=autocast, feature_dtype=feature_dtype)
    return run.outputs(loader, progress=progress)


class Extraction:
    """Runs a model over loaders; the layers are chosen on the first batch."""

    def __init__(
        self,
        model: nn.Module,
        layers: LayerChoice,
        *,
        batch_fn: BatchFn[Any] | None = None,
        device: torch.device | str | None = None,
        autocast: torch.dtype | None = None,
        feature_dtype: torch.dtype = torch.float32,
    ) -> None:
        check_module(model)
        if feature_dtype not in (torch.float32, torch.float16):
            raise ValueError(f"feature_dtype must be torch.float32 or torch.float16, got {feature_dtype}.")
        self.model = model
        self.choice = layers
        self.batch_fn = batch_fn
        self.device = device_of(model) if device is None else torch.device(device)
        self.autocast = autocast
        self.feature_dtype = feature_dtype
        self.layers: tuple[str, ...] = ()
        self.layouts: dict[str, Layout] = {}
        self._widths: dict[str, int] = {}

    def batches(self, loader: Iterable[Any]) -> Iterator[Batch]:
        """Split the batches of a loader into arguments and labels."""
        return split_batches(loader, self.model, self.batch_fn)

    def outputs(self, loader: Iterable[Any], *, name: str = "loader", progress: bool = True) -> Outputs:
        """Run over a loader and return all results; messages refer to the loader as ``name``."""
        return as_outputs(list(self.pieces(loader, name=name, progress=progress)), self.layers)

    def pieces(
        self, loader: Iterable[Any], *, name: str = "loader", progress: bool = True, skip: int = 0
    ) -> Generator[Piece]:
        """Yield the results of each batch; the first ``skip`` batches are read but not run."""
        check_loader(loader)
        batches = self.batches(track(loader, f"reading {name}") if progress else loader)
        with ExitStack() as stack:
            stack.enter_context(on_device(self.model, self.device))
            stack.enter_context(evaluating(self.model))
            first = next(batches, None)
            if first is None:
                raise ValueError(f"{name} yielded no batches.")
            self._choose(first)
            inner = [layer for layer in self.layers if layer != LOGITS]
            capture = LayerCapture(self.model, {layer: self.layouts[layer] for layer in inner})
            stack.callback(capture.remove)
            for number, batch in enumerate(chain([first], batches)):
                if number >= skip:
                    yield self._run(batch, capture, number)

    def _choose(self, batch: Batch) -> None:
        if self.layers:
            return
        with self._precision():
            traced = trace(self.model, batch)
        self.layers = select_from(traced, self.model, self.choice)
        self.layouts = layouts_of(traced, self.layers, self.choice)
        pooled = {call.shape[1:-1] for call in traced.calls if call.name in self.layers and call.shape is not None}
        warn_of_padding(self.model, batch.args, batch.kwargs, pooled)

    def _run(self, batch: Batch, capture: LayerCapture, number: int) -> Piece:
        batch = batch.to(self.device)
        mask = token_mask(self.model, batch.args, batch.kwargs)
        with torch.inference_mode(), self._precision(), uncompiled(), capture.reading(mask) as features:
            output = self.model(*batch.args, **batch.kwargs)
            logits = logits_of(output).float()
        pooled = {**capture.ordered(features), LOGITS: logits}
        kept = {layer: pooled[layer].to(self.feature_dtype) for layer in self.layers}
        self._check({**kept, LOGITS: logits}, batch.n_samples, number)
        piece = {FEATURE_PREFIX + layer: values.cpu() for layer, values in kept.items()}
        piece["logits"] = logits.cpu()
        if batch.labels is not None:
            try:
                piece["labels"] = check_labels(batch.labels.cpu(), *logits.shape)
            except (TypeError, ValueError) as error:
                hint = ONE_LOGIT if raw_logits_of(output).shape[1] == 1 else USE_BATCH_FN
                raise type(error)(f"{error} {hint}") from error
        return piece

    def _check(self, pooled: dict[str, Tensor], n_samples: int, number: int) -> None:
        finite = torch.stack([values.isfinite().all() for values in pooled.values()])
        if not bool(finite.all()):
            bad = [layer for layer, good in zip(pooled, finite.tolist(), strict=True) if not good]
            is_half = torch.float16 in (self.autocast, self.feature_dtype)
            hint = "The float16 maximum is 65,504: use bfloat16 or float32" if is_half else "Check inputs and weights"
            raise ValueError(f"NaN or infinite activations in batch {number}, in the layers {bad}. {hint}.")
        for layer, values in pooled.items():
            if len(values) != n_samples:
                raise ValueError(f"Layer {layer!r} has {len(values)} rows for {n_samples} samples in batch {number}.")
            width = self._widths.setdefault(layer, values.shape[1])
            if values.shape[1] != width:
                raise ValueError(
                    f"The width of layer {layer!r} changed from {width} to {values.shape[1]} in batch {number}. "
                    "Choose a layer whose width does not depend on the input."
                )

    def _precision(self) -> AbstractContextManager[object]:
        return torch.autocast(self.device.type, dtype=self.autocast) if self.autocast else nullcontext()


def as_outputs(pieces: Sequence[Piece], layers: Sequence[str]) -> Outputs:
    """Concatenate the results of the batches."""

    def joined(name: str) -> Any:
        return torch.cat([piece[name] for piece in pieces]).numpy()

    logits = joined("logits")
    _reject_sigmoid(logits)
    labels = join_labels([piece.get("labels") for piece in pieces])
    return Outputs(logits, labels, {layer: joined(FEATURE_PREFIX + layer) for layer in layers})


def check_labelled(outputs: Outputs, name: str, why: str) -> None:
    """Raise unless the outputs of the loader ``name`` have labels; ``why`` says what needs them."""
    if outputs.labels is None:
        raise ValueError(
            f"{name} yields no labels, but {why}. Use batches (inputs, labels) or mappings with 'labels', or pass "
            "batch_fn, a function that maps a batch to (args, kwargs, labels)."
        )


def join_labels(batches: Sequence[Tensor | None]) -> NDArray[np.generic] | None:
    """Concatenate the labels of the batches; None if no batch has labels."""
    labelled = [labels for labels in batches if labels is not None]
    if labelled and len(labelled) != len(batches):
        raise ValueError(f"Only {len(labelled)} of {len(batches)} batches have labels. Label all batches or none.")
    return torch.cat(labelled).cpu().numpy() if labelled else None


def _reject_sigmoid(logits: NDArray[np.floating]) -> None:
    """Raise if one logit per sample, here the two logits (0, z), looks like a probability."""
    one = logits[:, 1] if logits.shape[1] == 2 and not logits[:, 0].any() else None
    if one is not None and len(one) >= FEW_ROWS and 0 <= one.min() < 0.5 < one.max() <= 1:
        raise ValueError(
            "The classifier returns one number per sample, all in [0, 1], as after a sigmoid. Calibration needs the "
            "logits: return the score before the sigmoid, as BCEWithLogitsLoss expects it. If these are logits, return "
            "two of them, as torch.cat([-z / 2, z / 2], dim=1)."
        )
