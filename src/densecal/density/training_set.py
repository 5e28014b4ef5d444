"""What a bank takes from a training set: how many centres or rows, which k; and validation samples that are in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import numpy as np

from densecal.arrays import Array, row_blocks, to_device_of, to_numpy
from densecal.arrays.checks import unit_rows
from densecal.errors import warn_user

DEFAULT_MEMORY_BUDGET = 256 << 20
"""Bytes that a search may use in addition to the features."""
BankSize = int | float | Literal["auto"] | None
"""A number of samples (int), a fraction of them (float), "auto", or None for all."""
Centres = int | Literal["auto"]
"""A number of centres per layer, or "auto"."""

MAX_CENTRES = 500
"""What "auto" uses for enough training samples. ``reproduction/studies/centres.py`` compares other numbers."""
SAMPLES_PER_CENTRE = 64
"""k-means uses a random sample of this many training samples per centre: more do not improve the centres."""
_FEWEST_SAMPLES_PER_CENTRE = 10
_PAPER_SAMPLES = 45_000
_WHOLE_SET = 50_000
_SMALLEST_SHARE = 12_500
_FEW_CLASSES = 50
_SMALLEST_K = 10
SAMPLES_CHECKED = 300
"""Number of validation samples, evenly spaced, whose nearest training sample is searched."""
TOLERANCE = 1e-3
"""Normalised features at most this far apart belong to the same input: the distance that half precision and another
batch size cause. Different inputs are farther apart by one or two orders of magnitude."""
LARGEST_SHARE = 0.05
"""Larger shares of validation samples at distance zero cause a warning; public data sets have a few duplicates."""
NARROWEST = 8
"""Narrower features do not identify an input: many inputs share them."""


def choose_centres(n_samples: int, centres: Centres) -> int:
    """Return the number of centres for so many training samples.

    "auto" is 500, or a tenth of the samples where there are fewer than 5,000, but at least 10.
    """
    if centres == "auto":
        return min(MAX_CENTRES, max(_FEWEST_SAMPLES_PER_CENTRE, n_samples // _FEWEST_SAMPLES_PER_CENTRE), n_samples)
    if isinstance(centres, bool) or not isinstance(centres, (int, np.integer)) or centres < 1:
        raise ValueError(f"centres must be 'auto' or an integer of at least 1, got {centres!r}.")
    if centres > n_samples:
        raise ValueError(f"centres must be at most {n_samples}, the number of training samples, got {centres}.")
    return int(centres)


def sample_size(centres: Centres) -> int:
    """Return how many training samples k-means uses for so many centres."""
    return SAMPLES_PER_CENTRE * (MAX_CENTRES if centres == "auto" else max(1, int(centres)))


def choose_k(n_samples: int, n_classes: int) -> int:
    """Return a default k for a bank of ``n_samples`` samples of ``n_classes`` classes.

    The paper uses the 50th of 45,000 (10 classes), the 200th of 45,000 (100 classes) and the 10th of 12,811 (1,000
    classes). In between, k is proportional to the size of the bank, at most 80 % of the samples per class, so that all
    neighbours can belong to one class, and at least 10.
    """
    largest = 50 if n_classes < _FEW_CLASSES else 200
    in_proportion = largest * min(n_samples, _PAPER_SAMPLES) / _PAPER_SAMPLES
    k = max(_SMALLEST_K, int(min(in_proportion, 0.8 * n_samples / n_classes)))
    return min(k, n_samples)


def choose_bank_size(available: int, bank_size: BankSize) -> int:
    """Return how many training samples a bank keeps. "auto" is all up to 50,000, else 1 % but at least 12,500."""
    if bank_size is None:
        return available
    if bank_size == "auto":
        return available if available <= _WHOLE_SET else max(_SMALLEST_SHARE, available // 100)
    if isinstance(bank_size, bool) or not isinstance(bank_size, (int, float, np.integer)):
        raise TypeError(
            f"bank_size must be 'auto', a number of samples, a fraction or None for all, got {bank_size!r}."
        )
    if isinstance(bank_size, float) and not 0 < bank_size <= 1:
        raise ValueError(f"bank_size as a fraction must lie in (0, 1], got {bank_size}.")
    size = max(1, round(available * bank_size)) if isinstance(bank_size, float) else int(bank_size)
    if not 1 <= size <= available:
        raise ValueError(f"bank_size must lie in 1 ... {available}, the number of training samples, got {bank_size!r}.")
    return size


class DuplicateCheck:
    """The distance of some validation samples to the nearest training sample, in the widest layer.

    Feed it the training features batch by batch with ``update``, then call ``warn``.

    Parameters
    ----------
    features : mapping of str to array of shape (n_samples, width)
        The validation features.
    """

    def __init__(self, features: Mapping[str, Array]) -> None:
        self.layer = max(features, key=lambda layer: features[layer].shape[1], default="")
        self._rows = np.empty((0, 0), np.float32)
        if self.layer and features[self.layer].shape[1] >= NARROWEST:
            array = features[self.layer]
            rows = np.linspace(0, len(array) - 1, min(SAMPLES_CHECKED, len(array))).astype(int)
            self._rows = _unique_rows(to_numpy(unit_rows(array[rows], self.layer)))
        self._nearest = np.full(len(self._rows), np.inf)

    def update(self, features: Mapping[str, Array]) -> None:
        """Compare the validation samples with a batch of training samples."""
        if not len(self._rows):
            return
        array = features[self.layer]
        for rows in row_blocks(len(array), 4 * (len(self._rows) + array.shape[1]), 1 << 25):
            batch = unit_rows(array[rows], self.layer)
            ours = to_device_of(self._rows, batch)
            nearest = batch[(ours @ batch.T).argmax(1)]
            # Not from the product, whose rounding errors are larger than the tolerance.
            distances = to_numpy(((ours - nearest) ** 2).sum(1)) ** 0.5
            self._nearest = np.minimum(self._nearest, distances)

    @property
    def share(self) -> float:
        """The share of the checked validation samples that are at distance zero from a training sample."""
        return float((self._nearest <= TOLERANCE).mean()) if len(self._nearest) else 0.0

    def warn(self) -> None:
        """Warn if more than 5 % of the checked validation samples are training samples."""
        if self.share <= LARGEST_SHARE:
            return
        warn_user(
            f"{self.share:.0%} of the validation samples are also in the training data (among {len(self._nearest)} "
            f"checked; their features in {self.layer!r} are within {TOLERANCE:g} of those of a training sample). A "
            "classifier is more often right on the data that it was trained on than on new data, so the calibrated "
            "confidences will be too high. Use validation data that the classifier was not trained on."
        )


def _unique_rows(rows: Array) -> Array:
    """Return the rows that no other row equals: a feature that several samples share identifies none of them."""
    similar = rows @ rows.T
    np.fill_diagonal(similar, -np.inf)
    distances = np.linalg.norm(rows - rows[similar.argmax(axis=1)], axis=1)
    return rows[distances > TOLERANCE]
