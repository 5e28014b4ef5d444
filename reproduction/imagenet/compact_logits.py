"""Logits of 1,000 classes in 65 numbers: the sorted logits at some ranks, and that of the true class.

Calibration and its metrics need the predicted class, the true one, and the sorted logits, which are a smooth curve
beyond the first. The assignment of the other logits to classes is discarded.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtri
from torch import Tensor

from reproduction.measuring.measurements import LOGIT_STEP, MeasuredSet
from reproduction.natural.vector_network import Floats, Labels

N_CLASSES, N_EXACT, N_FURTHER = 1000, 32, 32
RANKS = np.r_[np.arange(N_EXACT), np.geomspace(N_EXACT, N_CLASSES - 1, N_FURTHER).round().astype(int)]
SMALLEST = -127.0
"""Files hold values up to 128, and exp(-127) is zero."""


def compact(logits: Tensor, labels: Tensor) -> tuple[Floats, NDArray[np.int16]]:
    """Return the logits at ``RANKS`` and of the label, less the largest; and label, predicted class, label's rank."""
    values, order = logits.sort(dim=1, descending=True, stable=True)
    rank = (order == labels[:, None]).int().argmax(dim=1)
    kept = torch.cat([values[:, torch.from_numpy(RANKS).to(values.device)], values.gather(1, rank[:, None])], dim=1)
    below = (kept - values[:, :1]).clamp(min=SMALLEST)
    about = torch.stack([labels, order[:, 0], rank], dim=1)
    return below.float().cpu().numpy(), about.cpu().numpy().astype(np.int16)


def expand(stored: MeasuredSet, seed: int = 0) -> MeasuredSet:
    """Return logits of all classes and labels from what `compact` returns; the other classes are in random order."""
    label, predicted, rank = np.asarray(stored.labels, np.int64).T

    def logits() -> Floats:
        return _spread(stored.logits, label, predicted, rank, np.random.default_rng(seed))

    return MeasuredSet(logits, lambda: stored.distances, label)


def _spread(below: Floats, label: Labels, predicted: Labels, rank: Labels, draw: np.random.Generator) -> Floats:
    # Between the ranks that are stored, the logits are taken as those of a normal distribution.
    place = ndtri((np.arange(N_CLASSES) + 0.5) / N_CLASSES)
    weights = np.stack([np.interp(place, place[RANKS], one) for one in np.eye(len(RANKS))]).astype(np.float32)
    curve = below[:, : len(RANKS)] @ weights
    # Stored values may be equal to the largest by rounding.
    curve[:, 1:] = np.minimum(curve[:, 1:], -LOGIT_STEP / 2)
    rows = np.arange(len(below))
    curve[rows, rank] = np.where(rank > 0, np.minimum(below[:, -1], -LOGIT_STEP / 2), 0)
    ranks = draw.permuted(np.tile(np.arange(N_CLASSES), (len(below), 1)), axis=1)
    for chosen, wanted in ((predicted, np.zeros_like(rank)), (label, rank)):
        other = (ranks == wanted[:, None]).argmax(axis=1)
        ranks[rows, other], ranks[rows, chosen] = ranks[rows, chosen], wanted
    return np.take_along_axis(curve, ranks, axis=1)
