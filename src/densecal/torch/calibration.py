"""Calibrate: from a classifier and two loaders to a calibrated model, in one call."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

from densecal.calibrators.base import Calibrator
from densecal.calibrators.dac import DAC
from densecal.calibrators.registry import make_calibrator
from densecal.density.bank import FeatureBank
from densecal.density.defaults import choose_bank_size, choose_k
from densecal.errors import CalibrationWarning
from densecal.outputs import Outputs
from densecal.torch.extraction import Extraction, as_outputs, refuse_what_is_no_loader
from densecal.torch.features.layers import LOGITS, LayerChoice
from densecal.torch.head.state import stages_of
from densecal.torch.model import CalibratedModel
from densecal.torch.perturbed import gives_images, perturbed_loaders
from densecal.torch.subsets import bank_loader
from densecal.torch.wrappers import bare_names

logger = logging.getLogger("densecal")

MUCH_WORSE = 0.1
"""So far below the accuracy on new data that on the training data hardly ever is, augmented or not."""


def calibrate(
    model: nn.Module,
    train_loader: Iterable[Any] | None,
    val_loader: Iterable[Any],
    *,
    method: str | None = None,
    perturb: bool | Literal["auto"] = "auto",
    shifted: Sequence[Iterable[Any]] | DataLoader[Any] | None = None,
    layers: LayerChoice = "auto",
    k: Literal["auto"] | int = "auto",
    bank: Literal["auto"] | int | float | None = "auto",
    device: torch.device | str | None = None,
    autocast: torch.dtype | None = None,
    seed: int = 0,
    progress: bool = True,
) -> CalibratedModel:
    """Fit a calibrator for a trained classifier and return both as one model.

    Parameters
    ----------
    model : nn.Module
        The trained classifier. Its weights are not changed. The returned model holds it, not a copy, and serves in
        evaluation mode: a classifier that was in training mode is in evaluation mode afterwards.
    train_loader : iterable of batches
        What the classifier was trained on, best without augmentation. None for a method without DAC.
    val_loader : iterable of batches
        Labelled data that it was not trained on.
    method : str, optional
        A calibrator's short name, or several joined by +. By default ``"dac"`` with perturbed or shifted data, which
        the study found best there, and the paper's ``"dac+ets"`` without.
    perturb : bool or "auto"
        Fit on three perturbed copies of the validation images as well, so that the confidence holds where the data will
        go. The perturbations (:func:`densecal.shift.perturb`) need no new data and know nothing of the coming shift.
        ``"auto"`` does so for images, unless a method is named or ``shifted`` is given; False is the paper's fit.
    shifted : sequence of loaders, or a DataLoader, optional
        Labelled data that have moved, of any kind, in the place of ``perturb``'s or beside them.
    layers : "auto", "paper", "all", "logits" or sequence of str
        Which layers to measure, as in :func:`~densecal.torch.select_layers`.
    k : int or "auto"
        Which neighbour's distance; ``"auto"`` follows the paper by bank size and number of classes.
    bank : int, float, None or "auto"
        How many training samples (or which share) to keep; None keeps all. ``"auto"`` keeps all up to 50,000, else
        1 %, but at least 12,500.
    device, autocast, progress :
        As in :func:`~densecal.torch.extract`.
    seed : int
        Draws the bank.

    Returns
    -------
    CalibratedModel
        On the classifier's device, in evaluation mode. Its ``choices`` say what was chosen; they are logged as well.

    Examples
    --------
    >>> import warnings
    >>> _ = torch.manual_seed(0)
    >>> net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> x, y = torch.randn(90, 4), torch.arange(90) % 3
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")
    ...     calibrated = calibrate(net, [(x, y)], [(x, y)], method="dac", k=5)
    >>> with torch.inference_mode():
    ...     calibrated(x[:2]).sum(dim=1).round(decimals=3)
    tensor([1., 1.])
    """
    refuse_what_is_no_loader(shifted)
    shifted = [shifted] if isinstance(shifted, DataLoader) else shifted
    if perturb == "auto":
        perturb = method is None and not shifted and train_loader is not None and _can_perturb(val_loader)
    if method is None:
        method = "dac" if perturb or shifted else "dac+ets"
    needs_bank = "dac" in method.lower().replace(" ", "").split("+")
    # A misspelt method or a missing loader should not cost a pass over the data first.
    make_calibrator(method)
    if (perturb or shifted) and not needs_bank:
        raise ValueError(f"perturb and shifted serve DAC, and method {method!r} has no such stage; leave them out.")
    if needs_bank and train_loader is None:
        raise ValueError(
            f"method {method!r} measures distances from the training data: train_loader must not be None. Without "
            "training data take method='ts' or another without dac."
        )
    choice: LayerChoice = layers if needs_bank else LOGITS
    extraction = Extraction(model, choice, device=device, autocast=autocast)
    val = _run(extraction, val_loader, "val_loader", progress)
    if val.labels is None:
        raise ValueError(
            "val_loader gives no labels, and a fit needs them: batches of (inputs, labels), or dicts with labels."
        )
    choices = {"method": method}
    features = None
    if train_loader is not None and needs_bank:
        features, choices["bank"] = _bank(extraction, train_loader, bank, k, val, seed, progress)
        choices["layers"] = ", ".join(bare_names(model, features.layers).values())
    val = _placed(val, extraction.device)
    moved = _moved(extraction, val_loader, perturb, shifted, seed, progress)
    options = {"shifted": moved} if moved else {}
    calibrator = make_calibrator(method, bank=features)
    calibrator.fit(val.logits, val.labels, features=val.features, **options)
    if needs_bank:
        choices["fitted for shift"] = _fitted_for_shift(calibrator, len(val), sum(map(len, moved)))
    calibrated = CalibratedModel(model, calibrator, extraction.layouts, choices=choices)
    if needs_bank:
        calibrated.choices["measured"] = ", ".join(calibrated.layers) or "no layer: all weights are zero"
    for name, text in calibrated.choices.items():
        logger.info("calibrate: %s: %s", name, text)
    calibrated.head.to(next((parameter.device for parameter in model.parameters()), extraction.device))
    return calibrated


def _fitted_for_shift(calibrator: Calibrator, clean: int, moved: int) -> str:
    if any(isinstance(stage, DAC) and stage.shift_fitted for stage in stages_of(calibrator)):
        return f"on {moved:,} moved samples beside {clean:,} clean ones"
    if moved:
        return f"no: with {moved:,} moved samples the {clean:,} clean ones came out worse"
    return f"no: on {clean:,} clean samples alone"


def _can_perturb(val_loader: Iterable[Any]) -> bool:
    if isinstance(val_loader, Iterator):
        warnings.warn(
            "val_loader is an iterator, which can be read only once, so no perturbed copies of its images can be made "
            "and the fit is the paper's, on clean data. Give a DataLoader or a list of batches.",
            CalibrationWarning,
            stacklevel=3,
        )
        return False
    return gives_images(val_loader)


def _bank(
    extraction: Extraction,
    train_loader: Iterable[Any],
    bank: Literal["auto"] | int | float | None,
    k: Literal["auto"] | int,
    val: Outputs,
    seed: int,
    progress: bool,
) -> tuple[FeatureBank, str]:
    classes = val.n_classes
    loader, size = bank_loader(train_loader, bank, seed)
    train = _run(extraction, loader, "train_loader", progress)
    subsample = choose_bank_size(len(train), bank) if size is None else None
    kept = len(train) if subsample is None else subsample
    neighbor = choose_k(kept, classes) if k == "auto" else k
    _warn_of_other_preparation(train, val)
    train = _placed(train, extraction.device)
    made = FeatureBank(train.features, k=neighbor, subsample=None if kept == len(train) else kept, seed=seed)
    why = f" (auto, for {classes} classes)" if k == "auto" else ""
    return made, f"{kept:,} training samples, k = {neighbor}{why}"


def _warn_of_other_preparation(train: Outputs, val: Outputs) -> None:
    """Warn where a classifier knows its own training data worse than new data: they came to it in another form."""
    if train.labels is None:
        return
    on_train, on_val = (float(np.mean(one.logits.argmax(axis=1) == one.labels)) for one in (train, val))
    if on_train < on_val - MUCH_WORSE:
        warnings.warn(
            f"The classifier gets {on_train:.1%} of train_loader's samples right, and {on_val:.1%} of val_loader's. Do "
            "both prepare their inputs alike (normalised, resized, in the same range)? The bank must show what it was "
            "trained on as it sees it, best without augmentation. If only train_loader's labels are noise, all is "
            "well: the bank takes none.",
            CalibrationWarning,
            stacklevel=4,
        )


def _moved(
    extraction: Extraction,
    val_loader: Iterable[Any],
    perturb: bool,
    shifted: Sequence[Iterable[Any]] | None,
    seed: int,
    progress: bool,
) -> list[Outputs]:
    """Return what the classifier says about the perturbed copies and the shifted data."""
    copies = perturbed_loaders(val_loader, seed) if perturb else []
    named = [
        *((loader, f"perturbed copy {number} of {len(copies)}") for number, loader in enumerate(copies, start=1)),
        *((loader, "shifted") for loader in shifted or ()),
    ]
    moved = [_placed(_run(extraction, loader, name, progress), extraction.device) for loader, name in named]
    for outputs in moved:
        if outputs.labels is None:
            raise ValueError(
                "A loader of shifted= gives no labels; perturbed inputs keep the labels of their originals."
            )
    return moved


def _run(extraction: Extraction, loader: Iterable[Any], name: str, progress: bool) -> Outputs:
    pieces = list(extraction.pieces(loader, progress=progress, what=f"reading {name}"))
    if not pieces:
        raise ValueError(f"{name} gave no batch.")
    return as_outputs(pieces, extraction.layers)


def _placed(outputs: Outputs, device: torch.device) -> Outputs:
    """Return the outputs on a GPU, where the search and the fit run then, or as they are."""
    if device.type != "cuda":
        return outputs
    features = {layer: torch.as_tensor(values, device=device) for layer, values in outputs.features.items()}
    labels = None if outputs.labels is None else torch.as_tensor(outputs.labels, device=device)
    return Outputs(torch.as_tensor(outputs.logits, device=device), labels, features)
