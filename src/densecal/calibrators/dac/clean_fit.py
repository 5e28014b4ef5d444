"""The paper's fit: S = sum_l w_l s_l + w_0 on clean validation data, by Newton's method within the bounds."""

from __future__ import annotations

from typing import Any

import numpy as np

from densecal.calibrators.solvers.bounded_newton import Descent, bounded_newton
from densecal.calibrators.solvers.tempered_loss import TemperedLoss

SMALLEST_BIAS = 1e-3
"""w_0 stays above this share of the plain temperature, so that S > 0 for every input, however near."""
PILOT_ROWS = 2000


def minimise_over_weights(tempered: TemperedLoss, design: Any, temperature: float) -> Descent:
    """Minimise the mean loss over w >= 0 and w_0 > 0, in units of the plain temperature.

    A pilot on some of the rows starts from the plain temperature and from an even share of the layers; the better
    end is where all rows start from.
    """
    columns = design.shape[1]
    plain = np.append(np.zeros(columns - 1), 1.0)
    shared = np.append(np.full(columns - 1, 0.5 / max(1, columns - 1)), 0.5 if columns > 1 else 1.0)
    lowest = np.append(np.zeros(columns - 1), SMALLEST_BIAS)

    def descend(rows: slice, start: Any) -> Descent:
        part, matrix = tempered.subset(rows), temperature * design[rows]

        def derivatives(weights: Any) -> tuple[float, Any, Any]:
            inverse = 1 / (matrix @ weights)
            loss, slope, curvature = part.with_curvature(inverse)
            # With S = 1 / u: dL/dS = -u^2 dL/du and d2L/dS2 = u^4 d2L/du2 + 2 u^3 dL/du.
            by_s = -(inverse**2) * slope
            by_ss = inverse**4 * curvature + 2 * inverse**3 * slope
            count = len(matrix)
            return float(loss.mean()), matrix.T @ by_s / count, (matrix.T * by_ss) @ matrix / count

        return bounded_newton(derivatives, start, lowest)

    stride = max(1, len(design) // PILOT_ROWS)
    pilots = [descend(slice(None, None, stride), start) for start in (plain, shared)]
    best = min(pilots, key=lambda fit: fit.value)
    return best if stride == 1 else descend(slice(None), best.point)
