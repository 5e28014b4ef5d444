from __future__ import annotations

import numpy as np
import pytest

from densecal.metrics import expected_calibration_error, expected_calibration_error_kde


def ece_kde_by_kdepy(confidence, correct):
    """The definition, with KDEpy's own estimate of the two densities."""
    from KDEpy import FFTKDE

    grid = np.linspace(-0.6, 1.6, 2**14)
    inside = (grid > 0) & (grid < 1)
    bandwidth = confidence[correct].std() * (2 * len(confidence)) ** -0.2

    def density(values):
        mirrored = np.concatenate([-values[values < 0.5], values, 2 - values[values >= 0.5]])
        return 2 * np.where(inside, FFTKDE(kernel="triweight", bw=bandwidth).fit(mirrored).evaluate(grid), 0)

    p, p_correct = density(confidence), density(confidence[correct])
    with np.errstate(invalid="ignore", divide="ignore"):
        accuracy = np.minimum(correct.mean() * p_correct / p, 1)
    gap = np.where(p > 1e-6, np.abs(grid - accuracy) * p, 0)
    unit = (grid >= 0) & (grid <= 1)
    return np.trapezoid(gap[unit], grid[unit]) / np.trapezoid(p[unit], grid[unit])


@pytest.mark.parametrize("samples", [5, 60, 3000])
@pytest.mark.parametrize("shape", [(2, 2), (8, 1), (40, 1), (0.4, 0.6)])
def test_ece_kde_agrees_with_kdepy(samples, shape):
    pytest.importorskip("KDEpy")
    rng = np.random.default_rng(samples)
    confidence = rng.beta(*shape, size=samples)
    correct = rng.random(samples) < confidence**2
    correct[:2] = True
    assert expected_calibration_error_kde(confidence, correct) == pytest.approx(
        ece_kde_by_kdepy(confidence, correct), abs=1e-6
    )


def test_ece_kde_is_near_the_binned_ece_when_there_are_many_samples():
    rng = np.random.default_rng(0)
    confidence = rng.beta(4, 2, size=50_000)
    correct = rng.random(50_000) < 0.8 * confidence
    assert expected_calibration_error_kde(confidence, correct) == pytest.approx(
        expected_calibration_error(confidence, correct), abs=0.005
    )


@pytest.mark.parametrize("confidence", [0.0, 0.3, 0.5, 0.8, 1.0])
def test_equal_confidences_have_the_gap_itself_as_their_error(confidence):
    ece = expected_calibration_error_kde([confidence] * 4, [True, False, False, False])
    assert ece == pytest.approx(abs(confidence - 0.25), abs=1e-3)


def test_without_a_correct_prediction_the_error_is_the_mean_confidence():
    confidence = np.linspace(0.3, 0.7, 50)
    assert expected_calibration_error_kde(confidence, np.zeros(50, bool)) == pytest.approx(0.5, abs=1e-3)


def test_one_sample_is_enough():
    assert expected_calibration_error_kde([[0.4, 0.6]], [1]) == pytest.approx(0.4, abs=1e-3)
