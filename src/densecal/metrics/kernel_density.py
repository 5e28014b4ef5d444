"""Expected calibration error without bins, from kernel density estimates on a fixed grid."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from densecal.arrays import Array, ArrayLike, asarray_like, namespace
from densecal.metrics.calibration_error import read_top1, wide

GRID_LOW, GRID_HIGH, GRID_POINTS = -0.6, 1.6, 2**14
GRID_STEP = (GRID_HIGH - GRID_LOW) / (GRID_POINTS - 1)
GRID = np.linspace(GRID_LOW, GRID_HIGH, GRID_POINTS)
INSIDE = slice(int(np.searchsorted(GRID, 0.0, side="right")), int(np.searchsorted(GRID, 1.0, side="left")))
"""The grid points strictly between 0 and 1."""
NEGLIGIBLE_DENSITY = 1e-6
REACH = 3.0
"""Half-width of a triweight kernel in standard deviations."""


def expected_calibration_error_kde(probabilities: ArrayLike, labels: ArrayLike | None) -> float:
    r"""Return the ECE from kernel density estimates of the confidence (Zhang, Kailkhura and Han, 2020).

    .. math:: \int_0^1 |z - \mathrm{acc}(z)| \, p(z) \, dz, \qquad
              \mathrm{acc}(z) = \min\big(1, \mathrm{acc} \cdot p(z \mid \mathrm{correct}) / p(z)\big)

    Both densities use a triweight kernel whose standard deviation is that of the confidence of the correct predictions
    times :math:`(2N)^{-1/5}`, samples mirrored at 0 and 1, and the trapezoid rule with :math:`2^{14}` points on
    [-0.6, 1.6]. The bandwidth is at least the grid step, which matters for equal confidences. All bootstrap
    resamples use the bandwidth of the whole sample.

    The arguments are those of :func:`reliability_curve`.

    Examples
    --------
    >>> round(expected_calibration_error_kde([0.8] * 4, [True, True, False, False]), 3)
    0.3
    """
    confidence, correct = read_top1(probabilities, labels)
    confidence = wide(confidence)
    masses, hit_masses = (mirrored_masses(values) for values in (confidence, confidence[correct]))
    return kde_of_masses(masses, hit_masses, bandwidth_of(confidence, correct), confidence.shape[0])


def kde_of_masses(masses: Array, hit_masses: Array, bandwidth: float, n_samples: float) -> float:
    """Return the ECE-KDE of the masses of all and of the correct predictions on the grid."""
    # acc * p(z | correct) is the density of the correct predictions among all samples.
    return float(mean_gap(*(_smooth(one, bandwidth) / n_samples for one in (masses, hit_masses))))


def bandwidth_of(confidence: Array, correct: Array) -> float:
    """Return the standard deviation of the kernel for a float64 confidence."""
    hits = confidence[correct]
    return choose_bandwidth(namespace(confidence).std(hits if hits.shape[0] else confidence), confidence.shape[0])


def choose_bandwidth(spread: float, n_samples: int) -> float:
    """Return the standard deviation of the kernel from that of the confidence of the correct predictions."""
    return float(max(float(spread) * (2 * n_samples) ** -0.2, GRID_STEP))


def mean_gap(density: Array, hit_density: Array) -> Array:
    """Return the integral of |z - acc(z)| p(z) divided by that of p(z), along the last axis."""
    xp = namespace(density)
    seen = density > NEGLIGIBLE_DENSITY
    accuracy = xp.clip(hit_density / xp.where(seen, density, asarray_like(1.0, density)), None, 1.0)
    gap = xp.where(seen, xp.abs(asarray_like(GRID[INSIDE], density) - accuracy) * density, asarray_like(0.0, density))
    integrals = [wide(xp.sum(one, axis=-1)) - (one[..., 0] + one[..., -1]) / 2 for one in (gap, density)]
    return integrals[0] / integrals[1]


def _smooth(masses: Array, bandwidth: float) -> Array:
    """Return masses on the grid, convolved with the kernel, in the unit interval."""
    xp = namespace(masses)
    # Twice the grid size avoids wrap-around of the circular convolution: no kernel is wider.
    size = 2 * GRID_POINTS
    # The kernel is centred at index zero, as the FFT requires.
    distance = np.minimum(np.arange(size), size - np.arange(size)) * GRID_STEP
    spectrum = xp.fft.rfft(masses, n=size) * xp.fft.rfft(asarray_like(kernel(distance, bandwidth), masses), n=size)
    return xp.clip(xp.fft.irfft(spectrum, n=size)[INSIDE], 0.0, None)


def mirrored_masses(values: Array, weights: Array | float = 1.0) -> Array:
    """Return the mass on the grid of weighted values and their mirror images, each split between two points."""
    xp = namespace(values)

    def mass(values: Array) -> Array:
        left, share = neighbours(values)
        below = xp.bincount(left, weights=weights * (1.0 - share), minlength=GRID_POINTS)
        return below + xp.bincount(left + 1, weights=weights * share, minlength=GRID_POINTS)

    return mass(values) + mass(mirrored(values))


def mirrored(values: Array) -> Array:
    """Return each value mirrored at the nearer end of [0, 1]."""
    return namespace(values).where(values < 0.5, -values, 2.0 - values)


def neighbours(values: Array) -> tuple[Array, Array]:
    """Return the grid point to the left of each value, and the weight of the point to its right."""
    xp = namespace(values)
    position = (values - GRID_LOW) / GRID_STEP
    left = xp.clip(xp.astype(xp.floor(position), xp.int64), 0, GRID_POINTS - 2)
    return left, position - wide(left)


def kernel(distance: NDArray[Any], bandwidth: float) -> NDArray[Any]:
    """Return the triweight kernel with standard deviation ``bandwidth`` at the distances."""
    reach = REACH * bandwidth
    return np.asarray(35.0 / (32.0 * reach) * (1.0 - np.minimum(distance / reach, 1.0) ** 2) ** 3)
