"""The bank of a classifier, from the loader of its training data."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import InitVar, dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from densecal.arrays import Array, namespace, to_numpy
from densecal.calibrators.validation_warnings import warn_of_small_bank
from densecal.density.bank import FeatureBank
from densecal.density.defaults import BankSize, Centres, choose_bank_size, choose_k, sample_size
from densecal.density.duplicates import DuplicateCheck
from densecal.density.sample import FeatureSample
from densecal.errors import warn_user
from densecal.io.output_files import FEATURE_PREFIX
from densecal.outputs import Outputs
from densecal.torch.extraction import Extraction
from densecal.torch.loaders import bank_loader

MAX_ACCURACY_GAP = 0.1
"""A training accuracy this far below the validation accuracy indicates that the loaders preprocess differently."""


@dataclass
class BankOptions:
    """The options of a bank: a number of centres, or a number of samples and k.

    If neither is given, a fit with shifted data uses centres, and one without uses samples.
    """

    centres: Centres | None
    k: int | Literal["auto"] | None
    bank_size: BankSize
    seed: int
    has_shifted: InitVar[bool] = False

    def __post_init__(self, has_shifted: bool) -> None:
        if self.k is None and self.centres is None:
            self.k, self.centres = (None, "auto") if has_shifted and self.bank_size == "auto" else ("auto", None)
        if self.k is not None and self.centres is not None:
            raise ValueError(f"Pass k or centres, not both, got k={self.k!r} and centres={self.centres!r}.")
        if self.k is None and self.bank_size != "auto":
            raise ValueError(f"bank_size counts training samples, not centres: pass k too, got {self.bank_size!r}.")

    def choose_size(self, available: int) -> int:
        """Return how many of the available training samples to read."""
        if self.centres is None:
            return choose_bank_size(available, self.bank_size)
        return min(available, sample_size(self.centres))


def make_bank(
    extraction: Extraction, train_loader: Iterable[Any], val: Outputs, options: BankOptions, *, progress: bool
) -> FeatureBank:
    """Run the classifier over training data and keep a bank of its features, batch by batch."""
    duplicates, n_samples = DuplicateCheck(val.features), 0
    correct, rows = list[Tensor](), dict[str, list[Array]]()
    sample = None if options.centres is None else FeatureSample.for_centres(options.centres, options.seed)
    loader, drawn = bank_loader(train_loader, options.choose_size, options.seed)
    on_gpu = extraction.device.type == "cuda"
    for piece in extraction.pieces(loader, name="train_loader", progress=progress):
        n_samples += len(piece["logits"])
        if "labels" in piece:
            correct.append(piece["logits"].argmax(dim=1) == piece["labels"])
        tensors = {layer: piece[FEATURE_PREFIX + layer] for layer in extraction.layers}
        features = {layer: one.to(extraction.device) if on_gpu else to_numpy(one) for layer, one in tensors.items()}
        # On a CPU with torch: the threads of NumPy's products would slow the next forward pass, for which they wait.
        duplicates.update(features if on_gpu else tensors)
        if sample is not None:
            sample.add(features)
            continue
        for layer, values in features.items():
            rows.setdefault(layer, []).append(values)
    if correct:
        _warn_of_accuracy_gap(float(torch.cat(correct).double().mean()), val)
    duplicates.warn()
    warn_of_small_bank(n_samples, val.n_classes)
    if sample is not None:
        return FeatureBank.from_sample(sample, centres=options.centres or "auto")
    joined = {layer: namespace(*parts).concat(parts) for layer, parts in rows.items()}
    size = options.choose_size(n_samples) if drawn is None else n_samples
    k = options.k if isinstance(options.k, int) else choose_k(size, val.n_classes)
    return FeatureBank(joined, k=k, bank_size=size, seed=options.seed)


def _warn_of_accuracy_gap(on_train: float, val: Outputs) -> None:
    on_val = float(np.mean(val.logits.argmax(axis=1) == val.labels))
    if on_train < on_val - MAX_ACCURACY_GAP:
        warn_user(
            f"The classifier's accuracy is {on_train:.1%} on train_loader and {on_val:.1%} on val_loader. Check that "
            "both preprocess inputs in the same way (normalisation, size, range): the bank must contain the training "
            "inputs as the classifier expects them, preferably without augmentation. Training labels are not used."
        )
