"""The predicted class of an accuracy-preserving method, kept to the last digit."""

from __future__ import annotations

import numpy as np

from densecal.arrays import Array, is_torch, namespace


def keep_top_class(probabilities: Array, logits: Array) -> Array:
    """Raise the logits' top class by the last digit where rounding has tied it with another.

    A strictly increasing map keeps the order of exact numbers; two probabilities that differ by less than a
    float's last digit come out equal, and the first would win. A NumPy array is changed in place.
    """
    xp = namespace(probabilities)
    step = float(xp.finfo(probabilities.dtype).eps)
    if is_torch(probabilities):  # no branch on values, so that the function can be traced and exported
        top = logits.argmax(1, keepdim=True)
        largest, where = probabilities.max(1, keepdim=True)
        # Not largest * (1 + step): ONNX exporters take a factor so near to one for one and drop it.
        return probabilities.scatter(1, top, xp.where(where == top, largest, xp.add(largest, largest, alpha=step)))
    top = np.argmax(logits, axis=1)
    rows = np.flatnonzero(np.argmax(probabilities, axis=1) != top)
    if rows.size:
        probabilities[rows, top[rows]] = probabilities[rows].max(axis=1) * (1 + step)
    return probabilities
