"""Lightning: calibrate a classifier at the end of ``Trainer.fit``.

Requires Lightning: ``pip install "densecal[lightning]"``.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from inspect import signature
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from densecal.calibrators import UNCALIBRATED
from densecal.calibrators.registry import make_calibrator
from densecal.errors import require
from densecal.torch.batches import BatchFn
from densecal.torch.calibration import calibrate
from densecal.torch.model import CalibratedModel
from densecal.torch.perturbed import check_perturb

require("lightning", "lightning", __name__)

from lightning.pytorch import Callback, LightningModule, Trainer  # noqa: E402

FILE_NAME = "model.densecal"
"""The name of the calibrator's file if no checkpoint was written."""


class CalibrationCallback(Callback):  # type: ignore[misc]  # Lightning's types are not followed.
    """Calibrates the classifier at the end of ``Trainer.fit``, logs its calibration error and saves the calibrator.

    The calibrator is fitted on the trainer's validation data, on the first process only. ``calibration/ece`` and
    ``calibration/ece_before`` are logged on the same data, and the file is saved beside the checkpoint whose weights
    were calibrated.

    Parameters
    ----------
    classifier : str, optional
        The name of the submodule that returns the logits; by default ``forward`` of the LightningModule does.
    weights : {"best", "last"}
        The weights to calibrate: those of the best checkpoint, if there is one, or the last ones.
    train_loader, val_loader : iterable of batches, optional
        The training data, preferably without augmentation, and the validation data; by default those of the trainer.
    path : str or Path, optional
        The file to write; by default the checkpoint's with the suffix ``.densecal``.
    batch_fn : callable, optional
        As in :func:`~densecal.torch.extract`; also used for the evaluation.
    **options : object
        Passed to :func:`~densecal.torch.calibrate`: ``method``, ``shifted``, ``layers`` and others.

    Attributes
    ----------
    model : CalibratedModel or None
        The calibrated model, after the fit.
    metrics : dict of str to float
        The logged values.
    path : Path or None
        The file that was written; :meth:`CalibratedModel.load <densecal.torch.CalibratedModel.load>` reads it.

    Examples
    --------
    >>> from lightning.pytorch import Trainer
    >>> callback = CalibrationCallback(classifier="network", method="dac+ets")
    >>> trainer = Trainer(callbacks=[callback], logger=False, enable_checkpointing=False, accelerator="cpu")
    """

    def __init__(
        self,
        *,
        classifier: str | None = None,
        weights: Literal["best", "last"] = "best",
        train_loader: Iterable[object] | None = None,
        val_loader: Iterable[object] | None = None,
        path: str | Path | None = None,
        batch_fn: BatchFn[Any] | None = None,
        **options: Any,
    ) -> None:
        if weights not in ("best", "last"):
            raise ValueError(f"weights must be 'best' or 'last', got {weights!r}.")
        signature(calibrate).bind(None, None, None, **options)
        check_perturb(options.get("perturb", "auto"))
        if options.get("method") is not None:
            make_calibrator(options["method"])
        self.classifier, self.weights = classifier, weights
        self.train_loader, self.val_loader = train_loader, val_loader
        self.batch_fn, self.options = batch_fn, options
        self.given_path = None if path is None else Path(path)
        self.path: Path | None = None
        self.model: CalibratedModel | None = None
        self.metrics: dict[str, float] = {}

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Check before the training that the calibration can run after it."""
        self._find_classifier(pl_module)
        self._find_val_loader(trainer)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Calibrate, log and save; skipped by ``fast_dev_run``."""
        if not trainer.is_global_zero or trainer.fast_dev_run:
            return
        found = getattr(trainer.checkpoint_callback, f"{self.weights}_model_path", "")
        checkpoint = Path(found) if found else None
        module = pl_module if checkpoint is None else _restored(pl_module, checkpoint)
        val_loader = self._find_val_loader(trainer)
        train_loader = trainer.train_dataloader if self.train_loader is None else self.train_loader
        options = {"progress": trainer.progress_bar_callback is not None, **self.options}
        self.model = calibrate(
            self._find_classifier(module), train_loader, val_loader, batch_fn=self.batch_fn, **options
        )
        table = self.model.evaluate(val_loader, batch_fn=self.batch_fn)
        names = {"calibration/ece_before": UNCALIBRATED, "calibration/ece": self.model.calibrator.method_name}
        self.metrics = {name: float(table.values[method, "ece"][0]) for name, method in names.items()}
        for logger in trainer.loggers:
            logger.log_metrics(self.metrics, step=trainer.global_step)
        beside = Path(trainer.default_root_dir) / FILE_NAME if checkpoint is None else checkpoint
        self.path = self.given_path or beside.with_suffix(".densecal")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.model.save(self.path)

    def _find_val_loader(self, trainer: Trainer) -> Any:
        if self.val_loader is not None:
            return self.val_loader
        found = trainer.val_dataloaders
        if found is None:
            raise ValueError(
                "CalibrationCallback needs labelled validation data, but the trainer has none. Pass val_dataloaders "
                "to fit, or val_loader to the callback."
            )
        loaders = list(found.values()) if isinstance(found, dict) else found
        if not isinstance(loaders, (list, tuple)):
            return loaders
        if len(loaders) != 1:
            raise ValueError(
                f"The trainer has {len(loaders)} validation loaders. Pass the one to fit on as val_loader to "
                "CalibrationCallback, and those with shifted data as shifted."
            )
        return loaders[0]

    def _find_classifier(self, module: LightningModule) -> nn.Module:
        if self.classifier is None and type(module).forward is LightningModule.forward:
            names = ", ".join(name for name, _ in module.named_children())
            raise ValueError(
                f"{type(module).__name__} has no forward of its own. Name the submodule that returns the logits: "
                f"CalibrationCallback(classifier=...), one of {names}."
            )
        classifier: nn.Module = module.get_submodule(self.classifier or "")
        return classifier


def _restored(module: LightningModule, checkpoint: Path) -> LightningModule:
    """Return a copy of the module with the weights of a checkpoint."""
    copied = deepcopy(module)
    # This run wrote the checkpoint, and its hyperparameters may be objects of any class.
    state = torch.load(checkpoint, map_location=module.device, weights_only=False)["state_dict"]
    copied.load_state_dict(state)
    return copied
