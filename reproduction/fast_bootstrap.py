"""Bootstrap replicates of the two measures that cost too much one resample at a time: ECE-KDE and the OOD five."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import fft, sparse

from densecal.metrics import ood
from densecal.metrics.kernel_density import (
    GRID_HIGH,
    GRID_LOW,
    GRID_POINTS,
    GRID_STEP,
    NEGLIGIBLE_DENSITY,
    _kernel,
)
from densecal.metrics.resampling import Resamples

OOD_FUNCTIONS = {
    "fpr_at_95_tpr": ood.fpr_of,
    "detection_error": ood.detection_error_of,
    "auroc": ood.auroc_of,
    "aupr_in": ood.aupr_in_of,
    "aupr_out": ood.aupr_out_of,
}


def ood_replicates(in_domain: Any, out_of_domain: Any, resamples: int, seed: int) -> dict[str, Any]:
    """Return all five out-of-domain measures in each resample: one draw of both sets serves them all.

    Examples
    --------
    >>> ood_replicates([0.9, 0.8], [0.1, 0.2], 3, 0)["auroc"].tolist()
    [1.0, 1.0, 1.0]
    """
    inside, outside, ranks = ood.group_scores(in_domain, out_of_domain)
    generator = np.random.default_rng(seed)
    values = {name: np.empty(resamples) for name in OOD_FUNCTIONS}
    for row in range(resamples):
        drawn = [
            np.bincount(ranked[generator.integers(len(ranked), size=len(ranked))], minlength=ranks).astype(float)
            for ranked in (inside, outside)
        ]
        counts = ood.ScoreCounts(*drawn)
        for name, function in OOD_FUNCTIONS.items():
            values[name][row] = function(counts)
    return values


def kde_replicates(draws: Resamples, confidence: Any, correct: Any) -> Any:
    """Return the ECE-KDE in each resample, with the bandwidth of the whole sample.

    A density on a grid is linear in how often each sample was drawn, so all resamples are one sparse product and one
    convolution each.
    """
    confidence, correct = np.asarray(confidence, np.float64), np.asarray(correct, bool)
    hits = confidence[correct]
    spread = float(np.std(hits if len(hits) else confidence))
    bandwidth = max(spread * (2 * len(confidence)) ** -0.2, GRID_STEP)
    size = 2 * GRID_POINTS
    spectrum = fft.rfft(_kernel(bandwidth, size).astype(np.float32))
    grid = np.linspace(GRID_LOW, GRID_HIGH, GRID_POINTS)
    inside = (grid > 0) & (grid < 1)
    masses = _grid_masses(confidence)
    hit_masses = sparse.diags_array(correct.astype(np.float32)) @ masses
    found = []
    for block in draws.blocks():
        density, hit_density = (
            _smooth(np.asarray(block @ part, np.float32), spectrum, size)[:, inside] / len(confidence)
            for part in (masses, hit_masses)
        )
        seen = density > NEGLIGIBLE_DENSITY
        accuracy = np.minimum(hit_density / np.where(seen, density, 1), 1)
        gap = np.where(seen, np.abs(grid[inside] - accuracy) * density, 0)
        found.append(_trapezoid(gap) / _trapezoid(density))
    return np.concatenate(found)


def _grid_masses(values: Any) -> Any:
    """Return the (samples, grid) matrix that shares each value, and its mirror image, between its neighbours."""
    samples = np.arange(len(values))
    rows, columns, shares = [], [], []
    for each in (values, np.where(values < 0.5, -values, 2.0 - values)):
        position = (each - GRID_LOW) / GRID_STEP
        left = np.clip(np.floor(position).astype(np.int64), 0, GRID_POINTS - 2)
        share = position - left
        rows += [samples, samples]
        columns += [left, left + 1]
        shares += [1 - share, share]
    entries = np.concatenate(shares).astype(np.float32), (np.concatenate(rows), np.concatenate(columns))
    return sparse.csr_array(entries, shape=(len(values), GRID_POINTS))


def _smooth(masses: Any, spectrum: Any, size: int) -> Any:
    smooth = fft.irfft(fft.rfft(masses, n=size, axis=1) * spectrum, n=size, axis=1)
    return np.clip(smooth[:, :GRID_POINTS], 0, None)


def _trapezoid(values: Any) -> Any:
    return values.sum(axis=1, dtype=np.float64) - (values[:, 0] + values[:, -1]) / 2
