"""Distances of samples from the training data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from densecal.arrays import ArrayOrTensor

Rows: TypeAlias = int | slice | Sequence[int] | ArrayOrTensor
"""A row index, a slice, several row indices or a boolean mask."""


@dataclass(frozen=True, eq=False)
class Distances:
    """Distances of samples from the training data in each layer.

    Attributes
    ----------
    values : array of shape (n_samples, n_layers)
        Euclidean distances between normalised features.
    layers : tuple of str
        The layer of each column.
    k : int or None
        The distance is to the k-th nearest training sample, or to the nearest centre of the training samples (None).
    bank : str or None
        The fingerprint of the bank that measured them, where it is known.

    Examples
    --------
    >>> import numpy as np
    >>> distances = Distances(np.array([[0.1, 0.4], [0.3, 0.2]]), layers=("layer1", "pool"), k=10)
    >>> len(distances[:1])
    1
    """

    values: ArrayOrTensor
    layers: tuple[str, ...]
    k: int | None
    bank: str | None = None

    def matches(self, layers: tuple[str, ...], k: int | None, bank: str | None = None) -> bool:
        """Return whether the distances are of these layers, this k and, if both are known, this bank."""
        return (self.layers, self.k) == (layers, k) and (None in (bank, self.bank) or bank == self.bank)

    def __len__(self) -> int:
        return int(self.values.shape[0])

    def __getitem__(self, rows: Rows) -> Distances:
        return replace(self, values=self.values[rows])
