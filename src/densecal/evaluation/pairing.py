"""Check that two evaluations can be joined: the same samples and the same settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from densecal.arrays import to_numpy
from densecal.evaluation.conditions import Condition


def check_same_samples(ours: Sequence[Condition], theirs: Sequence[Condition]) -> None:
    """Raise unless both evaluations use the same samples, so that differences between them are paired."""
    if [str(condition) for condition in ours] != [str(condition) for condition in theirs]:
        raise ValueError("The tables are of different conditions. Evaluate both on the same conditions.")
    for one, same in zip(ours, theirs, strict=True):
        sizes = {(condition.n_samples, len(condition.loaded)) for condition in (one, same)}
        first, second = (() if found is None else to_numpy(found) for found in (one.loaded.labels, same.loaded.labels))
        if len(sizes) > 1 or not np.array_equal(first, second):
            raise ValueError(f"The tables have different samples of {str(one)!r}. Evaluate both on the same ones.")


def check_same_settings(ours: Mapping[str, object], theirs: Mapping[str, object]) -> None:
    """Raise if a setting of the evaluations differs."""
    for name, value in ours.items():
        if theirs.get(name, value) != value:
            raise ValueError(f"The tables differ in {name}: {value} and {theirs[name]}. Use the same for both.")


def check_same_numbers(
    ours: Mapping[tuple[str, str], NDArray[np.float64]], theirs: Mapping[tuple[str, str], NDArray[np.float64]]
) -> None:
    """Raise if a method of both evaluations has different values."""
    for (method, what), values in ours.items():
        if not np.array_equal(values, theirs.get((method, what), values), equal_nan=True):
            raise ValueError(
                f"Both tables have a method {method!r}, but its {what} differs. Evaluate one under another name."
            )
