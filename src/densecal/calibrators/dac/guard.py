"""Limits on how much worse the shift fit may be on clean data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from densecal.arrays import Array, asarray_like, namespace, softmax, to_numpy
from densecal.calibrators.solvers.temperature_fit import solve_temperature
from densecal.calibrators.temperature import TemperedLoss
from densecal.calibrators.validation_warnings import accuracy_and_chance, accuracy_at_chance
from densecal.errors import warn_user
from densecal.estimation.domains import FEWEST_SAMPLES, kind_of
from densecal.metrics import expected_calibration_error
from densecal.metrics.resampling import Resamples

if TYPE_CHECKING:
    from densecal.calibrators.dac.shift_fit import ShiftedData

_RESAMPLES = 100


class CleanCost(NamedTuple):
    """How much worse than temperature scaling a shift fit may be on clean data: ECE as a fraction, NLL in nats."""

    ece: float = 0.01
    nll: float = 0.02


CATASTROPHE = CleanCost(0.25, 1.0)
"""A cost above this is rejected even if its standard error is large, unless the limit is higher."""


def check_clean_cost(max_clean_cost: Any) -> CleanCost | None:
    """Return the limit as a CleanCost, or None for no limit."""
    if max_clean_cost is None:
        return None
    try:
        ece, nll = map(float, max_clean_cost)
        return CleanCost(ece, nll)
    except (TypeError, ValueError):
        raise ValueError(f"max_clean_cost must be (ece, nll), two numbers, or None, got {max_clean_cost!r}.") from None


def measure_clean_cost(logits: Array, labels: Array, temperatures: Any) -> dict[str, float]:
    """Return how much worse temperatures are on clean data than temperature scaling by NLL, with standard errors."""
    nll = TemperedLoss(logits, labels, "nll")
    plain = np.full(nll.samples, solve_temperature(nll, warn=False))
    added = nll(1 / temperatures)[0] - nll(1 / plain)[0]
    correct = to_numpy(namespace(logits).argmax(logits, axis=1) == labels)
    draws = Resamples(nll.samples, _RESAMPLES, seed=0)
    fitted, scaled = (_top_confidence(logits, each) for each in (temperatures, plain))
    gaps = draws.replicates("ece", fitted, correct) - draws.replicates("ece", scaled, correct)
    return {
        "ece": expected_calibration_error(fitted, correct) - expected_calibration_error(scaled, correct),
        # Resamples of a set without mistakes have no mistakes, but another set may have one.
        "ece_error": max(float(np.std(gaps)), 1 / (nll.samples + 2)),
        "nll": float(added.mean()),
        "nll_error": float(added.std() / np.sqrt(len(added))),
    }


def describe_cost(cost: Mapping[str, float]) -> str:
    """Return a clean cost as text, with its standard errors."""
    ece, nll = 100 * cost["ece"], cost["nll"]
    return f"ECE {ece:+.1f} ± {100 * cost['ece_error']:.1f} points, NLL {nll:+.4f} ± {cost['nll_error']:.4f}"


def accepts_cost(cost: Mapping[str, float], limit: CleanCost) -> bool:
    """Return whether a clean cost is within the limit, up to two standard errors; warn if it is not."""
    over = [
        name
        for name in CleanCost._fields
        if cost[name] - 2 * cost[f"{name}_error"] > getattr(limit, name)
        or not cost[name] <= max(getattr(CATASTROPHE, name), getattr(limit, name))
    ]
    if not over:
        return True
    figures = ", ".join(f"{name} {cost[name]:+.4f} (allowed {getattr(limit, name):+.4f})" for name in over)
    warn_user(
        "Fitted with shifted data (shifted= or perturbed copies), DAC is worse than temperature scaling on the clean "
        f"validation set beyond max_clean_cost: {figures}. DAC returns the clean fit. Check that the "
        "logits and labels of the shifted data belong to this classifier, or raise max_clean_cost."
    )
    return False


def leave_out_mislabelled(shifted: ShiftedData) -> ShiftedData:
    """Return the shifted data without the domains whose labels seem to be permuted; warn about them.

    On such a domain the classifier is worse than chance, but accurate once the classes are permuted. A shift alone can
    make it worse than chance, so a domain without such a permutation is kept, and with two classes every domain is.
    """
    logits, labels, scores, names = shifted.logits, shifted.labels, shifted.scores, np.asarray(shifted.names)
    wrong = {}
    for name in np.unique(names):
        rows = np.flatnonzero(names == name)
        accuracy, chance, error = accuracy_and_chance(logits[rows], labels[rows])
        is_worse = len(rows) >= FEWEST_SAMPLES and accuracy < chance - 3 * error
        if is_worse and _renamed_accuracy(logits[rows], labels[rows]) > max(0.5, chance):
            wrong[name] = f"the accuracy is {accuracy:.1%}, and {chance:.1%} with shuffled labels"
    kept = np.flatnonzero(~np.isin(names, list(wrong)))
    if not wrong or not len(kept):
        return shifted
    for name, found in wrong.items():
        warn_user(
            f"The shifted data {str(name)!r} were left out of the fit, because their labels seem to be those of other "
            f"classes: {found}. max_clean_cost=None keeps them."
        )
    return type(shifted)(logits[kept], labels[kept], scores[kept], names[kept].tolist())


def _renamed_accuracy(logits: Array, labels: Array) -> float:
    """Return the accuracy with the best permutation of three or more classes; 0 for two, which a shift can exchange."""
    if logits.shape[1] < 3:
        return 0.0
    counts = np.zeros((logits.shape[1], logits.shape[1]))
    np.add.at(counts, (to_numpy(namespace(logits).argmax(logits, axis=1)), to_numpy(labels)), 1)
    return float(counts[linear_sum_assignment(counts, maximize=True)].sum() / counts.sum())


def labels_match(shifted: ShiftedData) -> bool:
    """Return whether the classifier is better than chance on the shifted data; warn if not, also for single domains."""
    if found := accuracy_at_chance(shifted.logits, shifted.labels):
        warn_user(
            f"On the shifted data the classifier is no better than chance: {found}. Either the labels do not match the "
            "data, or the shift is too strong. DAC returns the clean fit."
        )
        return False
    kinds = np.array([kind_of(name) for name in shifted.names])
    for kind in sorted(set(kinds.tolist())):
        rows = np.flatnonzero(kinds == kind)
        found = accuracy_at_chance(shifted.logits[rows], shifted.labels[rows])
        if found and len(rows) >= FEWEST_SAMPLES:
            warn_user(
                f"On the shifted data {kind!r} the classifier is no better than chance: {found}. Check that the labels "
                "belong to the data: wrong labels of one domain spoil the fit and the estimated accuracies. If they "
                "do, this shift is too strong to learn from, and the fit may be better without it."
            )
    return True


def _top_confidence(logits: Array, temperatures: Any) -> Any:
    return to_numpy(softmax(logits / asarray_like(temperatures, logits)[:, None])).max(axis=1)
