"""The arrays of a file of outputs, and errors that name the file."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from densecal.errors import ArtefactError, CalibrationWarning
from densecal.io.output_files import FEATURE_PREFIX, listed


def split_arrays(path: str | Path, arrays: Mapping[str, Any]) -> tuple[Any, Any | None, dict[str, Any]]:
    """Return the logits, labels and features of a file; raise without logits, and warn of other arrays."""
    if "logits" not in arrays:
        there = listed(sorted(arrays)) or "nothing"
        raise ArtefactError(
            f"{path} has no array named 'logits', only {there}. Expected names: logits, labels and features/LAYER."
        )
    features = {name.removeprefix(FEATURE_PREFIX): arrays[name] for name in arrays if name.startswith(FEATURE_PREFIX)}
    others = sorted(set(arrays) - {"logits", "labels"} - {FEATURE_PREFIX + layer for layer in features})
    if others:
        warnings.warn(
            f"{path}: {listed(others)} {'is' if len(others) == 1 else 'are'} ignored. "
            "Expected names: logits, labels and features/LAYER.",
            CalibrationWarning,
            stacklevel=3,
        )
    return arrays["logits"], arrays.get("labels"), features


@contextmanager
def name_file_in_errors(path: str | Path) -> Iterator[None]:
    """Prefix the message of a ValueError or TypeError with the path."""
    try:
        yield
    except (ValueError, TypeError) as error:
        if str(path) in str(error):
            raise
        raise type(error)(f"{path}: {error}") from error
