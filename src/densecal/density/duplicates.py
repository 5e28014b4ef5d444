"""Validation samples among the training data."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from densecal.arrays import Array, namespace, row_blocks, to_device_of, to_numpy
from densecal.arrays.checks import unit_rows
from densecal.errors import warn_user

SAMPLES_CHECKED = 300
"""Number of validation samples compared with the training data; of training samples, once or twice as many."""
TOLERANCE = 1e-3
"""Normalised features at most this far apart are the same: half precision and another batch size cause that distance.
Features of different images are farther apart by one or two orders of magnitude; those of a table may be the same."""
LARGEST_SHARE = 0.05
"""Larger shares of duplicates cause a warning; public data sets have a few."""
CERTAINTY = 3.0
"""The difference of the two shares must also exceed this many of its standard errors."""


class DuplicateCheck:
    """Check whether validation samples are in the training data, by their features in the widest layer.

    Create it from the validation features, call ``update`` with each batch of training features, then ``warn``.

    Different samples can have the same features, such as the same answers in a survey. A new sample equals a training
    sample as often as a training sample equals another one, so only a larger share is suspicious. The share of equal
    training samples is estimated from a few, each compared with the rows after it. In every group of equal rows one has
    no equal row after it and, if there are several, one has exactly one. The share of unique rows is therefore P(none
    after it) - P(one after it), for any order.
    """

    def __init__(self, features: Mapping[str, Array]) -> None:
        self.layer = max(features, key=lambda layer: features[layer].shape[1], default="")
        array = features[self.layer] if self.layer else np.empty((0, 1), np.float32)
        rows = np.linspace(0, len(array) - 1, min(SAMPLES_CHECKED, len(array))).astype(int)
        self._val = unit_rows(array[rows], self.layer)
        self._val_equals = np.zeros(len(self._val), int)
        self._train = self._val[:0]
        self._train_equals = np.zeros(0, int)
        self._n_seen, self._step = 0, 1

    def update(self, features: Mapping[str, Array]) -> None:
        """Compare the validation samples, and some training samples before it, with a batch of training samples."""
        if not len(self._val):
            return
        array = features[self.layer]
        for rows in row_blocks(len(array), 4 * (3 * SAMPLES_CHECKED + array.shape[1]), 1 << 25):
            batch = unit_rows(array[rows], self.layer)
            # Kept on the device of the batches, so that they move to it only once.
            self._val, self._train = to_device_of(self._val, batch), to_device_of(self._train, batch)
            self._val_equals += _count_equals(self._val, batch)
            self._compare_training(batch)

    def _compare_training(self, batch: Array) -> None:
        """Compare the kept training samples with the rows after them, and keep some of these, evenly spaced."""
        start, self._n_seen = self._n_seen, self._n_seen + len(batch)
        while self._n_seen > 2 * SAMPLES_CHECKED * self._step:
            self._train, self._train_equals, self._step = self._train[::2], self._train_equals[::2], 2 * self._step
        self._train_equals += _count_equals(self._train, batch)
        places = np.arange(-start % self._step, len(batch), self._step)
        if places.size:
            added = batch[to_device_of(places, batch)]
            self._train = namespace(added).concat([self._train, added])
            self._train_equals = np.concatenate([self._train_equals, _count_equals(added, batch, places)])

    @property
    def share(self) -> float:
        """The share of the checked validation samples that have the same features as a training sample."""
        return float((self._val_equals > 0).mean()) if len(self._val) else 0.0

    @property
    def coincidence(self) -> float:
        """The share of the training samples that have the same features as another one."""
        return float(np.clip(1 - self._uniqueness.mean(), 0, 1)) if len(self._train) else 0.0

    @property
    def _uniqueness(self) -> NDArray[np.int64]:
        """Values whose mean is the share of the training samples that equal no other one."""
        return np.select([self._train_equals == 0, self._train_equals == 1], [1, -1])

    @property
    def expected(self) -> float:
        """The share of validation samples that would equal a training sample if none of them were in the data."""
        own = float((_count_equals(self._val, self._val) > 1).mean())  # one equal is itself
        if own > self.coincidence + LARGEST_SHARE:
            return 1.0  # duplicates were removed from the training data, so equal features prove nothing
        # Fewer samples have fewer equals, the fewest if all are equally likely to have one.
        unique = max(1 - self.coincidence, 1 / len(self._train))
        fewest = 1 - unique ** ((len(self._val) - 1) / self._n_seen)
        is_repeated = own + CERTAINTY * (fewest / len(self._val)) ** 0.5 < fewest
        return own if is_repeated else self.coincidence

    def warn(self) -> None:
        """Warn if more validation samples equal a training sample than coincidence explains."""
        if not len(self._train):  # nothing was compared
            return
        expected = self.expected
        variance = expected * (1 - expected) / len(self._val) + float(self._uniqueness.var()) / len(self._train)
        if self.share - expected <= LARGEST_SHARE + CERTAINTY * variance**0.5:
            return
        warn_user(
            f"{self.share:.0%} of the validation samples have the same features as a training sample, but only "
            f"{expected:.0%} would by coincidence (from {len(self._val)} validation and {len(self._train)} training "
            f"samples; the same within {TOLERANCE:g} in {self.layer!r}). So validation samples are probably in the "
            "training data, and the calibrated confidences will be too high for new data. Use validation data that the "
            "classifier was not trained on."
        )


def _count_equals(ours: Array, batch: Array, places: NDArray[np.int64] | None = None) -> NDArray[np.int64]:
    """Return how many rows of a batch equal each given row, up to two; only rows after its place, if given."""
    counts = np.zeros(len(ours), np.int64)
    if not len(ours):
        return counts
    own, every = (to_device_of(np.arange(len(one)), batch) for one in (ours, batch))
    products = ours @ batch.T
    if places is not None:
        products[every[None] <= to_device_of(places, batch)[:, None]] = -np.inf
    for _ in range(2):
        nearest = products.argmax(1)
        # Not from the product, whose rounding errors are larger than the tolerance.
        distances = to_numpy(((ours - batch[nearest]) ** 2).sum(1)) ** 0.5
        equal = (distances <= TOLERANCE) & (to_numpy(products[own, nearest]) > -np.inf)
        if not equal.any():
            break
        counts += equal
        products[own, nearest] = -np.inf
    return counts
