"""The weights of samples: how often each of them counts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from densecal.arrays import Array, ArrayLike
from densecal.arrays.checks import check_weights

if TYPE_CHECKING:
    from densecal.calibrators.base import Calibrator


def read_weights(sample_weight: ArrayLike | None, n_samples: int, calibrator: Calibrator) -> Array | None:
    """Return checked weights; if the mean of the positive ones is below one, they are scaled to a mean of one.

    As in scikit-learn, a weight of two counts as the sample given twice, so whole numbers are not scaled. Weights that
    sum to one, however, would count less than the prior of ``platt``, which stands for two samples.
    """
    if sample_weight is None:
        return None
    weights = check_weights(sample_weight, n_samples)
    if not all(stage.weighted for stage in calibrator.stages):
        name = calibrator.short_name
        raise ValueError(f"{name!r} takes no sample_weight: omit it, or use 'platt', 'beta' or 'dir'.")
    return weights / min(1.0, float(weights[weights > 0].mean()))
