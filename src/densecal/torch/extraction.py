"""Extract: run a classifier over a loader and keep its logits, labels and pooled layer features."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

from densecal.arrays.checks import check_labels
from densecal.outputs import Outputs
from densecal.progress import track
from densecal.torch.features.batches import Batch, device_of, split_batch
from densecal.torch.features.capture import LayerCapture
from densecal.torch.features.labels import Doubt
from densecal.torch.features.layers import LOGITS, LayerChoice, layouts_of, select_from
from densecal.torch.features.layout import Layout, logits_of
from densecal.torch.features.masks import token_mask, warn_of_padding
from densecal.torch.features.trace import evaluating, trace, uncompiled

Piece = dict[str, Tensor]
"""What one batch gave: ``logits``, ``labels`` where there are any, and ``features/LAYER``."""
FEATURES = "features/"


def extract(
    model: nn.Module,
    loader: Iterable[Any],
    layers: LayerChoice = "auto",
    *,
    device: torch.device | str | None = None,
    autocast: torch.dtype | None = None,
    feature_dtype: torch.dtype = torch.float32,
    progress: bool = True,
) -> Outputs:
    """Run a classifier over a loader; return logits, labels and the pooled features of some layers, on the CPU.

    Each layer's output is averaged over space or tokens on the device as soon as the layer has run; no feature map is
    kept. The model is in evaluation mode meanwhile, and back in its own mode, without hooks, afterwards.

    Parameters
    ----------
    model : nn.Module
        A classifier that returns logits: a tensor, a tuple, a dict with ``"logits"`` or an object with ``.logits``. A
        compiled one runs as it was written, so that its layers can be read.
    loader : iterable of batches
        Each a tensor, a tuple (inputs, labels) or a dict; labels may be absent, and what follows them is ignored.
    layers : "auto", "paper", "all", "logits" or sequence of str
        As in :func:`~densecal.torch.select_layers`; ``"logits"`` among the names means the classifier's output.
    device : torch.device or str, optional
        Where to run; by default where the model is.
    autocast : torch.dtype, optional
        Run in mixed precision, such as ``torch.bfloat16``. Averages are float32 all the same.
    feature_dtype : torch.dtype
        ``torch.float16`` halves the memory of the features. Logits are float32 always.
    progress : bool, default True
        Show a progress bar, on a terminal.

    Returns
    -------
    Outputs
        Of NumPy arrays.

    Examples
    --------
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> loader = [(torch.randn(5, 4), torch.tensor([0, 1, 2, 0, 1])), (torch.randn(2, 4), torch.tensor([1, 2]))]
    >>> extract(model, loader)
    Outputs(7 samples, 3 classes, labels, features {1: 8, logits: 3})
    """
    run = Extraction(model, layers, device=device, autocast=autocast, feature_dtype=feature_dtype)
    pieces = list(run.pieces(loader, progress=progress))
    if not pieces:
        raise ValueError("loader gave no batch, so there is nothing to extract.")
    return as_outputs(pieces, run.layers)


class Extraction:
    """One model with its layers chosen, ready to run over loaders; the choice is made on the first batch."""

    def __init__(
        self,
        model: nn.Module,
        layers: LayerChoice,
        *,
        device: torch.device | str | None = None,
        autocast: torch.dtype | None = None,
        feature_dtype: torch.dtype = torch.float32,
    ) -> None:
        if feature_dtype not in (torch.float32, torch.float16):
            raise ValueError(f"feature_dtype must be torch.float32 or torch.float16, got {feature_dtype}.")
        self.model = model
        self.choice = layers
        if not isinstance(model, nn.Module):
            raise TypeError(f"The classifier must be an nn.Module, got {type(model).__name__}.")
        self.device = device_of(model) if device is None else torch.device(device)
        self.autocast = autocast
        self.feature_dtype = feature_dtype
        self.layers: tuple[str, ...] = ()
        self.layouts: dict[str, Layout] = {}
        self._widths: dict[str, int] = {}

    def pieces(
        self, loader: Iterable[Any], *, skip: int = 0, progress: bool = True, what: str = "extracting"
    ) -> Generator[Piece]:
        """Yield what each batch gives; the first ``skip`` batches are read but not run."""
        refuse_what_is_no_loader(loader)
        given = (batch for batch in loader)
        read = track(given, what, total=length_of(loader)) if progress else given
        batches = (split_batch(batch, self.model) for batch in read)
        with ExitStack() as stack:
            stack.enter_context(_on_device(self.model, self.device))
            stack.enter_context(evaluating(self.model))
            first = next(batches, None)
            if first is None:
                return
            self._choose(first)
            inner = [layer for layer in self.layers if layer != LOGITS]
            capture = LayerCapture(self.model, {layer: self.layouts[layer] for layer in inner})
            stack.callback(capture.remove)
            doubt = Doubt()
            for number, batch in enumerate(chain([first], batches)):
                if number < skip:
                    doubt.see(batch.candidates)
                else:
                    yield self._run(batch, capture, number, doubt)
            doubt.settle()

    def _choose(self, batch: Batch) -> None:
        if self.layers:
            return
        with self._precision():
            traced = trace(self.model, batch)
        self.layers = select_from(traced, self.model, self.choice)
        self.layouts = layouts_of(traced, self.layers)
        pooled = {call.shape[1:-1] for call in traced.calls if call.name in self.layers and call.shape is not None}
        warn_of_padding(self.model, batch.inputs, batch.named, pooled)

    def _run(self, batch: Batch, capture: LayerCapture, number: int, doubt: Doubt) -> Piece:
        batch = batch.to(self.device)
        mask = token_mask(self.model, batch.inputs, batch.named)
        with torch.inference_mode(), self._precision(), uncompiled(), capture.reading(mask) as features:
            logits = logits_of(self.model(*batch.inputs, **batch.named)).float()
        pooled = {**capture.ordered(features), LOGITS: logits}
        kept = {layer: pooled[layer].to(self.feature_dtype) for layer in self.layers}
        self._check({**kept, LOGITS: logits}, batch, number)
        piece = {FEATURES + layer: values.cpu() for layer, values in kept.items()}
        piece["logits"] = logits.cpu()
        doubt.see(batch.candidates, logits.shape[1])
        if batch.labels is not None:
            try:
                piece["labels"] = check_labels(batch.labels.cpu(), *logits.shape)
            except ValueError:
                doubt.settle()  # Perhaps another item is the labels.
                raise
        return piece

    def _check(self, pooled: dict[str, Tensor], batch: Batch, number: int) -> None:
        finite = torch.stack([values.isfinite().all() for values in pooled.values()])
        if not bool(finite.all()):
            bad = [layer for layer, good in zip(pooled, finite.tolist(), strict=True) if not good]
            is_half = torch.float16 in (self.autocast, self.feature_dtype)
            hint = "float16 ends at 65,504: use bfloat16 or float32" if is_half else "Look for bad inputs or weights"
            raise ValueError(f"NaN or infinite activations in batch {number}, in the layers {bad}. {hint}.")
        for layer, values in pooled.items():
            if len(values) != batch.samples:
                raise ValueError(
                    f"The layer {layer!r} gave {len(values)} rows for {batch.samples} samples in batch {number}."
                )
            width = self._widths.setdefault(layer, values.shape[1])
            if values.shape[1] != width:
                raise ValueError(
                    f"The layer {layer!r} changed its width from {width} to {values.shape[1]} in batch {number}. A "
                    "layer whose width depends on the input cannot be compared; choose another."
                )

    @contextmanager
    def _precision(self) -> Iterator[None]:
        with torch.autocast(self.device.type, dtype=self.autocast) if self.autocast else nullcontext():
            yield


def as_outputs(pieces: Sequence[Piece], layers: Sequence[str]) -> Outputs:
    """Join what the batches gave."""
    labelled = [piece for piece in pieces if "labels" in piece]
    if labelled and len(labelled) != len(pieces):
        raise ValueError(f"Only {len(labelled)} of {len(pieces)} batches have labels; all must, or none.")

    def joined(name: str) -> Any:
        return torch.cat([piece[name] for piece in pieces]).numpy()

    labels = joined("labels") if labelled else None
    return Outputs(joined("logits"), labels, {layer: joined(FEATURES + layer) for layer in layers})


@contextmanager
def _on_device(model: nn.Module, device: torch.device) -> Iterator[None]:
    home = device_of(model)
    if home == device:
        yield
        return
    model.to(device)
    try:
        yield
    finally:
        model.to(home)


def refuse_what_is_no_loader(given: Any) -> None:
    """Refuse a data set, or a batch, in the place of a loader."""
    if isinstance(given, Dataset) and not hasattr(given, "__iter__"):
        raise TypeError(
            f"A loader gives batches, and a {type(given).__name__} single samples: wrap it, DataLoader(dataset, "
            "batch_size=256)."
        )
    rows = [item for item in given if isinstance(item, Tensor) and item.ndim == 1] if isinstance(given, tuple) else []
    if rows or isinstance(given, Mapping):
        raise TypeError("This is one batch, not a loader of batches: give a DataLoader, or a list, [(inputs, labels)].")


def length_of(given: Any) -> int | None:
    """Return how long a loader, a sampler or a data set says it is; None where it does not say.

    Examples
    --------
    >>> length_of([5, 7]), length_of(iter([5, 7]))
    (2, None)
    """
    try:
        return len(given)
    except (TypeError, NotImplementedError):
        return None
