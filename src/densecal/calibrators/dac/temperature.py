"""DAC's temperature S(x), for NumPy arrays and torch tensors alike: the only place where it is written.

(The fused GPU kernel of the torch head repeats it and is tested against this.)
"""

from __future__ import annotations

from densecal.arrays import Array, asarray_like, namespace
from densecal.calibrators.dac.excess import Excess


def clean_temperatures(scores: Array, weights: Array, bias: Array | float) -> Array:
    """Return S = w_0 + sum_l w_l s_l, of shape (n_samples,)."""
    return namespace(scores).sum(scores * asarray_like(weights, scores), axis=1) + bias


def shift_temperatures(logits: Array, scores: Array, weights: Array, bias: Array | float, excess: Excess) -> Array:
    """Return S = w_0 exp(sum_l w_l x_l), where x_l is the excess of the distance in layer l."""
    xp = namespace(scores)
    found = excess(logits, scores)
    return bias * xp.exp(xp.sum(found * asarray_like(weights, found), axis=1))
