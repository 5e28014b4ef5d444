"""Expected calibration error without bins: kernel density estimates on a fixed grid."""

from __future__ import annotations

import numpy as np

from densecal.arrays import Array, like, namespace
from densecal.metrics.inputs import read_top1, wide

GRID_LOW, GRID_HIGH, GRID_POINTS = -0.6, 1.6, 2**14
GRID_STEP = (GRID_HIGH - GRID_LOW) / (GRID_POINTS - 1)
NEGLIGIBLE_DENSITY = 1e-6


def expected_calibration_error_kde(probabilities: object, labels: object) -> float:
    r"""ECE from kernel density estimates of the confidence (Zhang, Kailkhura and Han, 2020).

    .. math:: \int_0^1 |z - \mathrm{acc}(z)| \, p(z) \, dz, \qquad
              \mathrm{acc}(z) = \min\big(1, \mathrm{acc} \cdot p(z \mid \mathrm{correct}) / p(z)\big)

    Both densities use a triweight kernel whose standard deviation is that of the correct predictions' confidence times
    :math:`(2N)^{-1/5}`, samples mirrored at 0 and 1, and :math:`2^{14}` points on [-0.6, 1.6] with the trapezoid rule.
    A bandwidth below the grid's step, as for equal confidences, is raised to that.

    Parameters
    ----------
    probabilities, labels
        (N, C) probabilities with labels (integers or one-hot), or (N,) top-1 confidence with N booleans that say
        whether the prediction was correct.

    Examples
    --------
    >>> round(expected_calibration_error_kde([0.8] * 4, [True, True, False, False]), 3)
    0.3
    """
    confidence, correct = read_top1(probabilities, labels)
    return kde_of(confidence, correct)


def kde_of(confidence: Array, correct: Array) -> float:
    """ECE-KDE of a confidence that has been checked."""
    xp = namespace(confidence)
    confidence = wide(confidence)
    hits = confidence[correct]
    samples, n_hits = confidence.shape[0], hits.shape[0]
    spread = float(xp.std(hits if n_hits else confidence))
    bandwidth = max(spread * (2 * samples) ** -0.2, GRID_STEP)

    inside, grid = _inside_the_unit_interval()
    grid = like(grid, confidence)
    density = _mirrored_density(confidence, bandwidth)[inside]
    # acc * p(z | correct) is the density of the correct predictions among all samples.
    hit_density = _mirrored_density(hits, bandwidth)[inside] * (n_hits / samples) if n_hits else 0.0 * density
    seen = density > NEGLIGIBLE_DENSITY
    accuracy = xp.clip(hit_density / xp.where(seen, density, like(1.0, density)), None, 1.0)
    gap = xp.where(seen, xp.abs(grid - accuracy) * density, like(0.0, density))
    return _trapezoid(gap) / _trapezoid(density)


def _trapezoid(values: Array) -> float:
    """Integrate by the trapezoid rule, in units of the grid's step."""
    return float(namespace(values).sum(values)) - float(values[0] + values[-1]) / 2


def _inside_the_unit_interval() -> tuple[slice, Array]:
    """Return where the grid lies strictly between 0 and 1, and the grid there."""
    grid = np.linspace(GRID_LOW, GRID_HIGH, GRID_POINTS)
    first, last = np.flatnonzero((grid > 0) & (grid < 1))[[0, -1]]
    return slice(int(first), int(last) + 1), grid[first : last + 1]


def _mirrored_density(values: Array, bandwidth: float) -> Array:
    """Density on the grid, each value mirrored at the end of [0, 1] that is nearer to it."""
    xp = namespace(values)
    mirrored = xp.where(values < 0.5, -values, 2.0 - values)
    masses = _spread_on_grid(values) + _spread_on_grid(mirrored)
    # Room for twice the grid keeps the circular convolution from wrapping around: no kernel reaches further.
    size = 2 * GRID_POINTS
    spectrum = xp.fft.rfft(masses, n=size) * xp.fft.rfft(like(_kernel(bandwidth, size), values), n=size)
    smooth = xp.fft.irfft(spectrum, n=size)[:GRID_POINTS]
    return xp.clip(smooth, 0.0, None) / values.shape[0]


def _spread_on_grid(values: Array) -> Array:
    """Share each value between its two neighbours on the grid, in proportion to nearness."""
    xp = namespace(values)
    position = (values - GRID_LOW) / GRID_STEP
    left = xp.clip(xp.astype(xp.floor(position), xp.int64), 0, GRID_POINTS - 2)
    share = position - wide(left)
    return xp.bincount(left, weights=1.0 - share, minlength=GRID_POINTS) + xp.bincount(
        left + 1, weights=share, minlength=GRID_POINTS
    )


def _kernel(bandwidth: float, size: int) -> Array:
    """Triweight kernel of this standard deviation on the grid's steps, wrapped around zero as an FFT wants it."""
    steps = np.minimum(np.arange(size), size - np.arange(size))
    # The triweight kernel on [-1, 1] has variance 1 / 9.
    reach = 3.0 * bandwidth
    distance = np.minimum(steps * GRID_STEP / reach, 1.0)
    return 35.0 / (32.0 * reach) * (1.0 - distance**2) ** 3
