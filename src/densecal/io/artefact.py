"""A fitted calibrator as one file: safetensors with a JSON header, nothing in it is ever executed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from densecal import __version__
from densecal.arrays import is_torch, to_numpy
from densecal.calibrators.base import Calibrator
from densecal.calibrators.chain import Chain
from densecal.density.bank import FeatureBank
from densecal.errors import ArtefactError
from densecal.io import storage

FORMAT = "densecal.calibrator"
VERSION = 1
BANK_PREFIX = "bank/"


def save_calibrator(
    calibrator: Calibrator,
    path: str | Path,
    *,
    half_precision_bank: bool = False,
    metadata: Mapping[str, Any] | None = None,
) -> None:
    """Write a fitted calibrator, its bank included, to one file.

    Parameters
    ----------
    half_precision_bank : bool, default False
        Write the bank in float16: half the size, distances right to about 1e-3.
    metadata : mapping, optional
        JSON values kept beside it, such as a fingerprint of the classifier.
    """
    stages = calibrator.stages if isinstance(calibrator, Chain) else (calibrator,)
    if not hasattr(stages[-1], "n_classes_"):
        raise ValueError(f"This {type(calibrator).__name__} is not fitted: there is nothing to save yet.")
    arrays: dict[str, Any] = {}
    header: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "densecal": __version__,
        "stages": [_pack_stage(number, stage, arrays) for number, stage in enumerate(stages)],
        "bank": None,
        "metadata": dict(metadata or {}),
    }
    bank = next((stage.bank for stage in stages if getattr(stage, "bank", None) is not None), None)
    if bank is not None:
        dtype = np.float16 if half_precision_bank else np.float32
        header["bank"] = {
            "layers": list(bank.layers),
            "widths": bank.widths,
            "k": bank.k,
            "samples": len(bank),
        }
        for layer in bank.layers:
            arrays[BANK_PREFIX + layer] = to_numpy(bank[layer]).astype(dtype)
    storage.write(path, header, arrays)


def load(path: str | Path) -> Calibrator:
    """Read a calibrator that ``save`` wrote. Loading never executes anything from the file.

    Examples
    --------
    >>> import densecal, tempfile
    >>> calibrator = densecal.TemperatureScaling().fit([[4.0, 0.0]] * 4, [0, 0, 0, 1])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     calibrator.save(folder + "/ts.densecal")
    ...     densecal.load(folder + "/ts.densecal").temperature_ == calibrator.temperature_
    True
    """
    header, arrays = storage.read(path, FORMAT)
    if header.get("version") != VERSION:
        raise ArtefactError(
            f"{path} has format version {header.get('version')}, this densecal ({__version__}) reads version {VERSION}."
            f" It was written by densecal {header.get('densecal')}: load it with that release, or fit again."
        )
    try:
        bank = _unpack_bank(header["bank"], arrays)
        stages = [_unpack_stage(number, stage, arrays, bank) for number, stage in enumerate(header["stages"])]
    except (KeyError, TypeError, ValueError) as error:
        raise ArtefactError(f"{path} is damaged or was made by other means: {error}") from error
    if len(stages) == 1:
        return stages[0]
    chain = Chain(*stages)
    chain.n_classes_ = stages[-1].n_classes_
    return chain


def _pack_stage(number: int, stage: Calibrator, arrays: dict[str, Any]) -> dict[str, Any]:
    learned: dict[str, Any] = {}
    for name, value in vars(stage).items():
        if not name.endswith("_") or name.startswith("_"):
            continue
        if isinstance(value, np.ndarray) or is_torch(value):
            arrays[f"{number}/{name}"] = to_numpy(value)
        else:
            learned[name] = value.item() if isinstance(value, np.generic) else value
    params = {name: value for name, value in stage.get_params(deep=False).items() if name != "bank"}
    return {"method": stage.short_name, "params": params, "learned": learned}


def _unpack_stage(
    number: int, packed: Mapping[str, Any], arrays: Mapping[str, Any], bank: FeatureBank | None
) -> Calibrator:
    from densecal.calibrators.registry import METHODS

    method = METHODS.get(packed["method"])
    if method is None:
        raise ValueError(f"it holds the unknown method {packed['method']!r}.")
    stage = method(**packed["params"])
    if bank is not None and hasattr(stage, "bank"):
        stage.set_params(bank=bank)
    for name, value in packed["learned"].items():
        _set_learned(stage, name, value)
    prefix = f"{number}/"
    for name, array in arrays.items():
        if name.startswith(prefix):
            _set_learned(stage, name.removeprefix(prefix), np.array(array))
    return stage


def _set_learned(stage: Calibrator, name: str, value: Any) -> None:
    if not name.endswith("_") or name.startswith("_"):
        raise ValueError(f"{name!r} is not a learned attribute.")
    setattr(stage, name, value)


def _unpack_bank(packed: Mapping[str, Any] | None, arrays: Mapping[str, Any]) -> FeatureBank | None:
    if packed is None:
        return None
    return FeatureBank({layer: arrays[BANK_PREFIX + layer] for layer in packed["layers"]}, k=packed["k"])
