"""calibrate: fit a calibrator for a classifier from its data loaders."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader

from densecal.calibrators import DAC_NAME, DEFAULT_METHOD
from densecal.calibrators.dac import DAC
from densecal.calibrators.dac.guard import describe_cost
from densecal.calibrators.registry import has_dac, is_shift_fitted, make_calibrator
from densecal.calibrators.temperature import Loss
from densecal.calibrators.validation_warnings import label_cautions
from densecal.density.defaults import BankSize, Centres
from densecal.errors import warn_user
from densecal.outputs import Outputs
from densecal.torch.batches import BatchFn, BatchT, device_of
from densecal.torch.extraction import Extraction, check_labelled
from densecal.torch.features.layers import LOGITS, LayerChoice
from densecal.torch.loaders import check_disjoint, check_loader
from densecal.torch.model import CalibratedModel
from densecal.torch.perturbed import COPIES, Kinds, check_perturb, find_images, perturbed_loaders
from densecal.torch.training_data import BankOptions, make_bank
from densecal.torch.wrappers import bare_names

logger = logging.getLogger("densecal")


def calibrate(
    model: nn.Module,
    train_loader: Iterable[BatchT] | None,
    val_loader: Iterable[BatchT],
    *,
    method: str | None = None,
    perturb: bool | Literal["auto"] | Sequence[str] | Mapping[str, float] = "auto",
    shifted: DataLoader[object] | Sequence[Iterable[BatchT]] | Mapping[str, Iterable[BatchT]] | None = None,
    layers: LayerChoice = "auto",
    centres: Centres | None = None,
    k: int | Literal["auto"] | None = None,
    bank_size: BankSize = "auto",
    loss: Loss | None = None,
    batch_fn: BatchFn[BatchT] | None = None,
    device: torch.device | str | None = None,
    autocast: torch.dtype | None = None,
    seed: int = 0,
    progress: bool = True,
) -> CalibratedModel:
    """Fit a calibrator for a trained classifier and return both as one model.

    Parameters
    ----------
    model : nn.Module
        The trained classifier. The returned model contains it, in evaluation mode and otherwise unchanged.
    train_loader, val_loader : iterable of batches
        Training data, preferably not augmented (None without DAC), and labelled data held out from training.
    method : str, optional
        Short names joined by ``+``; by default ``"dac-shift"`` with perturbed or shifted data, otherwise ``"dac+ets"``.
        ``"dac"`` is the clean fit unless ``perturb`` or ``shifted`` is given.
    perturb : bool, "auto", or kinds as in :func:`~densecal.shift.perturb`
        Also fit on three perturbed copies of the validation images, for calibration and estimates of the accuracy under
        shift. ``"auto"`` does so for images unless ``shifted`` or a method other than ``"dac-shift"`` is given. A list
        of kinds (or a mapping to weights) draws from these only: omit kinds that can change the class.
    shifted : DataLoader, or sequence or mapping of loaders, optional
        Additional labelled data under shift to fit on; a mapping names the domains.
    centres, k, bank_size : int or "auto"
        As in :class:`~densecal.FeatureBank`: centres (the default with shifted data) or training samples, as in the
        paper (the default without). ``bank_size="auto"`` keeps up to 50,000, else 1 % but at least 12,500.
    loss : {"nll", "brier"}, optional
        As in :func:`~densecal.make_calibrator`.
    layers, batch_fn, device, autocast, progress : optional
        As in :func:`~densecal.torch.extract`.
    seed : int
        Seed of the bank and of the perturbations.

    Examples
    --------
    >>> classifier, x = nn.Linear(4, 3), torch.randn(90, 4)
    >>> model = calibrate(classifier, None, [(x, torch.arange(90) % 3)], method="ts")
    >>> torch.equal(model(x).argmax(dim=1), classifier(x).argmax(dim=1))
    True
    """
    extraction = Extraction(model, layers, batch_fn=batch_fn, device=device, autocast=autocast)
    _check_loaders(train_loader, val_loader)
    sets, kinds = _shifted_loaders(shifted), check_perturb(perturb)
    if kinds == "auto":
        may_perturb = train_loader is not None and not sets and (method is None or is_shift_fitted(method))
        kinds = may_perturb and _can_perturb(val_loader, extraction)
    if method is None:
        method = DAC_NAME if kinds or sets else DEFAULT_METHOD
    options = BankOptions(centres, k, bank_size, seed, has_shifted=bool(kinds or sets))
    return _Calibration(extraction, method, loss, options, progress).run(train_loader, val_loader, sets, kinds)


def _check_loaders(train_loader: Iterable[Any] | None, val_loader: Iterable[Any]) -> None:
    check_loader(val_loader)
    if train_loader is not None:
        check_loader(train_loader)
        check_disjoint(train_loader, val_loader)


def _shifted_loaders(shifted: Any) -> dict[str, Iterable[Any]]:
    """Return the loaders of shifted data by the names of their domains."""
    expected = "shifted as a DataLoader or a list of loaders, [[(inputs, labels)]], or a dict of named loaders"
    if isinstance(shifted, Mapping) and not any(isinstance(value, torch.Tensor) for value in shifted.values()):
        loaders = {str(name): loader for name, loader in shifted.items()}
    else:
        sets = () if shifted is None else (shifted,) if isinstance(shifted, DataLoader) else shifted
        check_loader(sets, expected)
        loaders = {f"shifted[{number}]": loader for number, loader in enumerate(sets)}
    for loader in loaders.values():
        check_loader(loader, expected)
    return loaders


def _can_perturb(val_loader: Iterable[Any], extraction: Extraction) -> bool:
    if isinstance(val_loader, Iterator):
        warn_user(
            "val_loader is an iterator, which can be read only once, so its images cannot be perturbed and the fit "
            "uses clean data only. Pass a DataLoader or a list of batches."
        )
        return False
    first = next(extraction.batches(val_loader), None)
    return first is not None and find_images(first) is not None


@dataclass
class _Calibration:
    extraction: Extraction
    method: str
    loss: Loss | None
    bank_options: BankOptions
    progress: bool

    def run(
        self,
        train_loader: Iterable[Any] | None,
        val_loader: Iterable[Any],
        shifted: Mapping[str, Iterable[Any]],
        perturb: bool | Kinds,
    ) -> CalibratedModel:
        # Report a misspelt method or a missing loader before any pass over the data.
        make_calibrator(self.method, loss=self.loss)
        self._check_data(train_loader is not None, bool(perturb or shifted))
        model, choices, uses_dac = self.extraction.model, {"method": self.method}, has_dac(self.method)
        if not uses_dac:
            self.extraction.choice = LOGITS
        kinds = None if isinstance(perturb, bool) else perturb
        if kinds is not None:
            choices["perturbations"] = ", ".join(kinds)
        seed = self.bank_options.seed
        copies = perturbed_loaders(val_loader, self.extraction.batches, seed, kinds) if perturb else []
        val = self._read(val_loader, "val_loader")
        for caution in label_cautions(val):
            warn_user(caution)
        bank = None
        if train_loader is not None and uses_dac:
            bank = make_bank(self.extraction, train_loader, val, self.bank_options, progress=self.progress)
            is_auto = "auto" in (self.bank_options.k, self.bank_options.centres)
            choices["bank"] = bank.describe() + (" (auto)" if is_auto else "")
            choices["layers"] = ", ".join(bare_names(model, bank.layers).values())
        calibrator = make_calibrator(self.method, bank=bank, loss=self.loss)
        domains: dict[str, Outputs] = {}
        if copies:
            read = [self._read(one, f"perturbed copy {number} of {COPIES}") for number, one in enumerate(copies, 1)]
            names = np.concatenate([copy.domains(len(one)) for copy, one in zip(copies, read, strict=True)])
            # Measured at once, and split by the kind and strength of the perturbation.
            domains = calibrator.measure(self._on_gpu(Outputs.concatenate(read))).split(names)
        for name, loader in shifted.items():
            domains[name] = self._on_gpu(self._read(loader, name))
        calibrator.fit(self._on_gpu(val), shifted=domains or None)
        if calibrator.density_stage is not None:
            n_shifted = sum(map(len, domains.values()))
            choices["shift fit"] = _describe_fit(calibrator.density_stage, len(val), n_shifted)
        calibrated = CalibratedModel(model, calibrator, self.extraction.layouts, choices=choices)
        if uses_dac:
            calibrated.choices["measured"] = ", ".join(calibrated.layers) or "no layer: all weights are zero"
        for name, text in calibrated.choices.items():
            logger.info("calibrate: %s: %s", name, text)
        calibrated.head.to(device_of(model))
        return calibrated

    def _check_data(self, has_train: bool, has_shifted: bool) -> None:
        if is_shift_fitted(self.method) and not has_shifted:
            raise ValueError(
                f"method {self.method!r} is fitted on shifted data: pass shifted=, or perturb=True for images, or use "
                "'dac' for the clean fit."
            )
        if has_shifted and not has_dac(self.method):
            raise ValueError(f"perturb and shifted require a dac stage, but method {self.method!r} has none.")
        if has_dac(self.method) and not has_train:
            raise ValueError(
                f"method {self.method!r} measures distances from the training data: train_loader must not be None. "
                "Without training data use a method without dac, such as 'ts'."
            )

    def _read(self, loader: Iterable[Any], name: str) -> Outputs:
        outputs = self.extraction.outputs(loader, name=name, progress=self.progress)
        check_labelled(outputs, name, "the fit needs them")
        return outputs

    def _on_gpu(self, outputs: Outputs) -> Outputs:
        """Return the outputs on the GPU of the classifier, if any, so that the search and the fit run there."""
        if self.extraction.device.type != "cuda":
            return outputs
        move = partial(torch.as_tensor, device=self.extraction.device)
        features = {layer: move(values) for layer, values in outputs.features.items()}
        return Outputs(move(outputs.logits), move(outputs.labels), features)


def _describe_fit(stage: DAC, n_clean: int, n_shifted: int) -> str:
    if stage.clean_cost_ is None:
        return f"no: fitted on {n_clean:,} clean samples only"
    cost = f"on clean data {describe_cost(stage.clean_cost_)} compared with temperature scaling"
    rejected = "" if stage.shift_fitted else "no: rejected after a fit "
    return f"{rejected}on {n_shifted:,} shifted and {n_clean:,} clean samples; {cost}"
