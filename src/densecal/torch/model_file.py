"""The file of a calibrated model: its calibrator, the layouts of its layers and the fingerprint of its classifier."""

from __future__ import annotations

from dataclasses import astuple, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from densecal.calibrators.state import from_artefact
from densecal.errors import ArtefactError
from densecal.io import artefacts
from densecal.torch.features.layout import Layout
from densecal.torch.fingerprint import differences, fingerprint
from densecal.torch.wrappers import check_module

if TYPE_CHECKING:
    from densecal.torch.model import CalibratedModel


def write_model(path: str | Path, model: CalibratedModel, *, half_precision_bank: bool, check_classifier: bool) -> None:
    """Write the calibrator of a model, its bank and the fingerprint of its classifier; see ``CalibratedModel.save``."""
    if check_classifier:
        model.record.raise_if_changed(model.classifier)
    metadata = {
        "classifier": fingerprint(model.classifier),
        "layouts": {layer: astuple(layout) for layer, layout in model.layouts.items()},
        "choices": model.choices,
    }
    state = replace(model.calibrator.state(), bank=model.head.bank_state())
    artefacts.write(path, state, half_precision_bank=half_precision_bank, metadata=metadata)


def read_model(path: str | Path, classifier: nn.Module, *, check_classifier: bool) -> dict[str, Any]:
    """Return the arguments of ``CalibratedModel`` in a file; see ``CalibratedModel.load``."""
    check_module(classifier)
    artefact = artefacts.read(path)
    calibrator, metadata = from_artefact(path, artefact), artefact.metadata
    if "layouts" not in metadata:
        raise ArtefactError(
            f"{path} has a calibrator that was saved without a model, so the layouts of its layers are missing. "
            "Use densecal.torch.calibrate, or CalibratedModel(classifier, calibrator, layouts)."
        )
    try:
        layouts = {layer: Layout(*values) for layer, values in metadata["layouts"].items()}
        known = metadata["classifier"] if check_classifier else None
        difference = None if known is None else differences(known, classifier)
    except (AttributeError, LookupError, TypeError) as error:
        raise artefacts.damaged(path, error) from error
    if difference is not None:
        raise ArtefactError(
            f"{path} does not belong to this classifier: {difference}. Pass check_classifier=False to load it."
        )
    return {"calibrator": calibrator, "layouts": layouts, "choices": metadata.get("choices"), "fingerprint": known}
