"""The guard of the shift fit: what robustness may cost on clean data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from densecal.arrays import Array, asarray_like, namespace, softmax, to_numpy
from densecal.calibrators.dac.clean_fit import warn
from densecal.calibrators.solvers.tempering import TemperedLoss, solve_temperature
from densecal.metrics import expected_calibration_error
from densecal.metrics.resampling import Resamples

_RESAMPLES = 100


class CleanCost(NamedTuple):
    """How much worse than temperature scaling clean data may get for shifted data: ECE as a share, NLL in nats."""

    ece: float = 0.01
    nll: float = 0.02


def measure_clean_cost(logits: Array, labels: Array, temperatures: Any) -> dict[str, float]:
    """Return what a fit's temperatures cost on clean validation data against temperature scaling by NLL.

    The costs come with their standard errors, paired over the samples.
    """
    nll = TemperedLoss(logits, labels, "nll")
    plain = np.full(nll.samples, solve_temperature(nll))
    added = nll(1 / temperatures)[0] - nll(1 / plain)[0]
    correct = to_numpy(namespace(logits).argmax(logits, axis=1) == labels)
    draws = Resamples(nll.samples, _RESAMPLES, seed=0)
    fitted, scaled = (_top_confidence(logits, each) for each in (temperatures, plain))
    gaps = draws.replicates("ece", fitted, correct) - draws.replicates("ece", scaled, correct)
    return {
        "ece": expected_calibration_error(fitted, correct) - expected_calibration_error(scaled, correct),
        "ece_error": float(np.std(gaps)),
        "nll": float(added.mean()),
        "nll_error": float(added.std() / np.sqrt(len(added))),
    }


def accepts_cost(cost: Mapping[str, float], limit: CleanCost) -> bool:
    """Whether a fit stays within the price, as far as the validation set can tell; warn if it does not."""
    over = [name for name in CleanCost._fields if cost[name] - 2 * cost[f"{name}_error"] > getattr(limit, name)]
    if not over:
        return True
    figures = ", ".join(f"{name} {cost[name]:+.4f} (allowed {getattr(limit, name):+.4f})" for name in over)
    warn(
        "Fitted with shifted data (shifted= or perturbed copies), DAC makes the clean validation set worse than "
        f"temperature scaling beyond max_clean_cost: {figures}. It returns the fit on clean data instead. Check that "
        "the shifted data belong to this classifier and their labels to them, or allow a higher max_clean_cost."
    )
    return False


def _top_confidence(logits: Array, temperatures: Any) -> Any:
    return to_numpy(softmax(logits / asarray_like(temperatures, logits)[:, None])).max(axis=1)
