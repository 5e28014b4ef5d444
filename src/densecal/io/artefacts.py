"""Artefacts: files that hold the state of a fitted calibrator, including its bank.

This module reads and writes states, not calibrators: ``Calibrator.state()`` returns a state, and
``Calibrator.from_state()`` restores the calibrator.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from densecal import __version__
from densecal.arrays import Array, is_torch, to_numpy
from densecal.arrays.checks import check_finite
from densecal.errors import ArtefactError
from densecal.io import safetensors_file
from densecal.io.atomic_files import creation_time

FORMAT = "densecal.calibrator"
VERSION = 1
_BANK_PREFIX = "bank/"
_COUNTS_PREFIX = "bank counts/"


@dataclass(frozen=True)
class StageState:
    """The state of one method: its short name, its parameters and its learned attributes by name."""

    method: str
    params: dict[str, Any]
    learned: dict[str, Any]


@dataclass(frozen=True)
class BankState:
    """The state of a bank: normalised training features of each layer and k, or centres and their training samples."""

    features: dict[str, Array]
    k: int | None
    counts: dict[str, Array] | None = None


@dataclass(frozen=True)
class CalibratorState:
    """The state of a fitted calibrator as plain data. A single method has one stage."""

    stages: tuple[StageState, ...]
    bank: BankState | None = None
    data_hashes: dict[str, str] = field(default_factory=dict)
    """The SHA-256 of the data of the fit, by role: validation or shifted."""


@dataclass(frozen=True)
class Artefact:
    """The content of a calibrator file."""

    state: CalibratorState
    metadata: dict[str, Any] = field(default_factory=dict)
    densecal_version: str = __version__
    created_at: str = ""
    n_calibrators: int = 1
    """More than one for an ensemble of classifiers; the stages are then those of the first, the second, ..."""

    def states(self) -> list[CalibratorState]:
        """Return the state of each calibrator."""
        n_stages, rest = divmod(len(self.state.stages), self.n_calibrators)
        if rest:
            raise ValueError(f"{len(self.state.stages)} stages are not those of {self.n_calibrators} calibrators.")
        starts = range(0, len(self.state.stages), n_stages)
        return [replace(self.state, stages=self.state.stages[start : start + n_stages]) for start in starts]


def write(
    path: str | Path,
    state: CalibratorState,
    *,
    metadata: Mapping[str, Any] | None = None,
    half_precision_bank: bool = False,
    n_calibrators: int = 1,
) -> None:
    """Write a state to one file. A bank in float16 halves the size; distances are then accurate to about 1e-3."""
    arrays: dict[str, Any] = {}
    stages = []
    for number, stage in enumerate(state.stages):
        values: dict[str, Any] = {}
        for name, value in stage.learned.items():
            if isinstance(value, np.ndarray) or is_torch(value):
                arrays[f"{number}/{name}"] = to_numpy(value)
            else:
                values[name] = value.item() if isinstance(value, np.generic) else value
        stages.append({"method": stage.method, "params": stage.params, "learned": values})
    header: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "densecal": __version__,
        "created_at": creation_time().isoformat(timespec="seconds"),
        "data_hashes": state.data_hashes,
        "n_calibrators": n_calibrators,
        "stages": stages,
        "bank": None,
        "metadata": dict(metadata or {}),
    }
    if state.bank is not None:
        # Centres are rounded to float16 when they are made, so this loses nothing.
        dtype = np.float16 if half_precision_bank or state.bank.counts is not None else np.float32
        header["bank"] = {"layers": list(state.bank.features), "k": state.bank.k}
        for layer, features in state.bank.features.items():
            arrays[_BANK_PREFIX + layer] = to_numpy(features).astype(dtype)
        for layer, counts in (state.bank.counts or {}).items():
            arrays[_COUNTS_PREFIX + layer] = to_numpy(counts).astype(np.float32)
    safetensors_file.write(path, header, arrays)


def write_several(path: str | Path, states: Sequence[CalibratorState], *, metadata: Mapping[str, Any]) -> None:
    """Write the calibrators of an ensemble, which share a bank if there is one, to one file."""
    stages = tuple(stage for state in states for stage in state.stages)
    write(path, replace(states[0], stages=stages), metadata=metadata, n_calibrators=len(states))


def read(path: str | Path) -> Artefact:
    """Read a file written by `write`."""
    header, arrays = safetensors_file.read(path, FORMAT, mapped=False)
    if header.get("version") != VERSION:
        raise ArtefactError(
            f"{path} has format version {header.get('version')}, but densecal {__version__} reads version {VERSION}. "
            f"It was written by densecal {header.get('densecal')}: load it with that release, or fit again."
        )
    try:
        stages = tuple(_read_stage(number, stage, arrays) for number, stage in enumerate(header["stages"]))
        bank = None
        if header["bank"] is not None:
            features = {layer: arrays[_BANK_PREFIX + layer] for layer in header["bank"]["layers"]}
            k = header["bank"]["k"]
            counts = {layer: arrays[_COUNTS_PREFIX + layer] for layer in features} if k is None else None
            bank = BankState(features, k, counts)
        hashes, metadata = header["data_hashes"], header["metadata"]
        if not stages or not isinstance(metadata, dict) or not isinstance(hashes, dict):
            raise ValueError("it has no stages, or its metadata is not a mapping.")
        state = CalibratorState(stages, bank, {str(name): str(one) for name, one in hashes.items()})
        count = header["n_calibrators"]
        if type(count) is not int or count < 1:
            raise ValueError(f"n_calibrators must be a positive integer, got {count!r}.")
        return Artefact(state, metadata, str(header["densecal"]), str(header["created_at"]), count)
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise damaged(path, error) from error


def damaged(path: str | Path, error: Exception) -> ArtefactError:
    """Return the error for a file with inconsistent content."""
    found = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) and error.args else error
    return ArtefactError(f"{path} is damaged or was not written by densecal: {found}")


def _read_stage(number: int, stage: Mapping[str, Any], arrays: Mapping[str, Any]) -> StageState:
    prefix = f"{number}/"
    learned = dict(stage["learned"])
    for name, value in learned.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{name} is {value}.")
    for name in arrays:
        if name.startswith(prefix):
            check_finite(arrays[name], name)
            learned[name.removeprefix(prefix)] = np.array(arrays[name])
    return StageState(stage["method"], dict(stage["params"]), learned)
