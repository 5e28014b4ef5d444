from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

torch = pytest.importorskip("torch")

from densecal.shift import CORRUPTIONS, corrupt  # noqa: E402
from densecal.shift.corruptions.randomness import Draw  # noqa: E402
from densecal.shift.random_keys import sample_keys  # noqa: E402

CPU = torch.device("cpu")


def draw(count=64, *context):
    return Draw(sample_keys(np.arange(count), *(context or (0,))), CPU)


def test_uniform_numbers_are_uniform_and_within_zero_and_one():
    u = draw().uniform(0, 4096).numpy()
    assert u.min() >= 0
    assert u.max() < 1
    assert stats.kstest(u.ravel(), "uniform").pvalue > 1e-3


def test_normal_numbers_are_normal_out_to_their_tails():
    z = draw(256).normal(0, 4096).numpy().ravel()
    assert stats.kstest(z, "norm").pvalue > 1e-3
    assert abs(z.mean()) < 4 / np.sqrt(z.size)
    assert z.std() == pytest.approx(1, abs=4 / np.sqrt(2 * z.size))
    assert (np.abs(z) > 3).mean() == pytest.approx(2 * stats.norm.sf(3), rel=0.1)
    assert stats.kurtosis(z) == pytest.approx(0, abs=0.03)


def test_all_bits_are_fair():
    bits = draw(128).bits(0, 2048).numpy()
    shares = [((bits >> place) & 1).mean() for place in range(32)]
    assert np.abs(np.array(shares) - 0.5).max() < 5 / np.sqrt(4 * bits.size)


def test_neighbouring_positions_samples_streams_and_seeds_are_independent():
    u = draw(512).uniform(0, 512).numpy() - 0.5
    others = (
        (u[:, :-1], u[:, 1:]),
        (u[:, :-32], u[:, 32:]),
        (u[:-1], u[1:]),
        (u, draw(512).uniform(1, 512).numpy() - 0.5),
        (u, draw(512, 1).uniform(0, 512).numpy() - 0.5),
    )
    for a, b in others:
        assert abs((a * b).mean() / (1 / 12)) < 5 / np.sqrt(a.size)


def test_no_two_of_many_samples_share_their_noise():
    # If the key entered by one exclusive-or alone, samples whose keys differ in the low bits would be permutations.
    bits = draw(20_000).bits(0, 16).numpy()
    assert len(np.unique(np.sort(bits, axis=1), axis=0)) == 20_000


def test_keys_follow_every_part_of_their_context():
    keys = [
        sample_keys(np.arange(3), *context) for context in ((0, "fog", 1), (0, "fog", 2), (1, "fog", 1), (0, "snow", 1))
    ]
    assert len(np.unique(keys)) == 12
    # "1", 12 and "11", 2 are different contexts.
    assert (sample_keys(np.arange(3), 1, 12) != sample_keys(np.arange(3), 11, 2)).all()


def test_negative_and_huge_indices_and_seeds_are_fine():
    image = np.full((1, 32, 32, 3), 128, dtype=np.uint8)
    for index in (-1, 2**40):
        assert (corrupt(image, "gaussian_noise", 3, seed=-(10**12), index=np.array([index])) != image).any()


@pytest.mark.parametrize("severity", [1, 3, 5])
def test_gaussian_noise_has_the_published_standard_deviation(severity):
    grey = np.full((40, 32, 32, 3), 128, dtype=np.uint8)
    noise = corrupt(grey, "gaussian_noise", severity).astype(float) - 128
    sigma = CORRUPTIONS["gaussian_noise"].cifar[severity - 1][0] * 255
    assert noise.std() == pytest.approx(np.hypot(sigma, 12**-0.5), rel=0.02)
    assert noise.mean() == pytest.approx(-0.5, abs=0.02 * sigma)  # levels are cut off, not rounded


@pytest.mark.parametrize("severity", [1, 3, 5])
@pytest.mark.parametrize("level", [1, 40, 200])
@pytest.mark.parametrize("size", [32, 224])
def test_shot_noise_counts_follow_the_poisson_distribution(severity, level, size):
    flat = np.full((40 if size == 32 else 1, size, size, 3), level, dtype=np.uint8)
    result = corrupt(flat, "shot_noise", severity).ravel()
    table = CORRUPTIONS["shot_noise"].cifar if size == 32 else CORRUPTIONS["shot_noise"].imagenet
    rate = table[severity - 1][0]
    counts = np.arange(int(rate * 3) + 60)
    outcome = np.minimum(np.floor(counts / rate * 255 + 1e-9), 255).astype(int)
    expected = np.bincount(outcome, stats.poisson.pmf(counts, level / 255 * rate), minlength=256)
    observed = np.bincount(result, minlength=256) / result.size
    spread = np.sqrt(expected * (1 - expected) / result.size)
    assert (np.abs(observed - expected) < 5 * spread + 1e-4).all()


def test_black_stays_black_under_shot_and_speckle_noise():
    black = np.zeros((1, 32, 32, 3), dtype=np.uint8)
    assert (corrupt(black, "shot_noise", 5) == 0).all()
    assert (corrupt(black, "speckle_noise", 5) == 0).all()


def test_speckle_noise_grows_with_the_level():
    dark, bright = (np.full((20, 32, 32, 3), level, dtype=np.uint8) for level in (30, 120))
    spread = [corrupt(flat, "speckle_noise", 3).astype(float).std() for flat in (dark, bright)]
    assert spread[1] / spread[0] == pytest.approx(4, rel=0.03)


@pytest.mark.parametrize("severity", [1, 3, 5])
def test_impulse_noise_is_half_salt_and_half_pepper(severity):
    grey = np.full((60, 32, 32, 3), 128, dtype=np.uint8)
    result = corrupt(grey, "impulse_noise", severity)
    amount = CORRUPTIONS["impulse_noise"].cifar[severity - 1][0]
    spread = np.sqrt(amount / grey.size)
    for extreme in (0, 255):
        assert (result == extreme).mean() == pytest.approx(amount / 2, abs=4 * spread)
    assert np.isin(result, (0, 128, 255)).all()


def test_plasma_fills_its_range_and_is_rougher_with_a_slower_decay():
    from densecal.shift.corruptions.weather import plasma

    smooth, rough = plasma(32, 3.0, draw()), plasma(32, 1.5, draw())
    for mist in (smooth, rough):
        assert mist.amin(dim=(1, 2)).eq(0).all()
        assert mist.amax(dim=(1, 2)).eq(1).all()
    assert (rough.diff(dim=1).abs().mean() / smooth.diff(dim=1).abs().mean()) > 1.5


def test_motion_blur_directions_are_spread_evenly_over_the_published_range():
    from densecal.shift.corruptions.blur import smear

    # One white pixel is blurred along its direction: the mean position of the far taps gives the angle.
    images = torch.zeros(400, 1, 65, 65, dtype=torch.uint8)
    images[:, :, 32, 32] = 255
    streaks = smear(images, 10, 8, (-45.0, 45.0), draw(400), stream=0)[:, 0].double()
    y, x = torch.meshgrid(torch.arange(65.0) - 32, torch.arange(65.0) - 32, indexing="ij")
    angle = torch.rad2deg(torch.atan2(-(streaks * y).sum((1, 2)), -(streaks * x).sum((1, 2)))).numpy()
    assert angle.min() > -47
    assert angle.max() < 47
    assert stats.kstest((angle + 45) / 90, "uniform").pvalue > 1e-3


def test_frost_overlays_are_icy_and_each_sample_gets_its_own_part():
    from densecal.shift.corruptions.frost import overlays

    ice = overlays(32, 32, None, CPU).cut(draw(200), 32, 32).double()
    red, green, blue = ice.mean(dim=(0, 2, 3))
    assert red < green < blue
    assert 90 < ice.mean() < 150
    assert ice.std() > 35
    assert len(torch.unique(ice.view(200, -1), dim=0)) == 200
