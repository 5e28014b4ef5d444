"""Find validation samples that are also training samples, while the training features pass by."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from densecal.arrays import Array, row_blocks, to_device_of, to_numpy
from densecal.arrays.checks import unit_rows
from densecal.errors import warn_user

SAMPLES_CHECKED = 300
"""Number of validation samples, evenly spaced, whose nearest training sample is searched."""
TOLERANCE = 1e-3
"""Normalised features at most this far apart belong to the same input: the distance that half precision and another
batch size cause. Different inputs are farther apart by one or two orders of magnitude."""
LARGEST_SHARE = 0.05
"""Larger shares of validation samples at distance zero cause a warning; public data sets have a few duplicates."""
NARROWEST = 8
"""Narrower features do not identify an input: many inputs share them."""


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
