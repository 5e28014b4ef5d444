from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from densecal.shift import CORRUPTIONS, FAMILY_WEIGHTS, PERTURBATIONS, SEVERITIES, corrupt, perturb, plan_perturbations  # noqa: E402

NAMES = tuple(PERTURBATIONS)


@pytest.fixture(scope="module")
def images():
    """Smooth images with edges and some grain, so that every perturbation shows: (24, 32, 32, 3)."""
    rng = np.random.default_rng(0)
    y, x = np.mgrid[0:32, 0:32] / 32
    phase = rng.uniform(0, 6, (24, 1, 1, 3))
    waves = np.sin(7 * x[None, ..., None] * rng.uniform(-1, 1, (24, 1, 1, 3)) + 5 * y[None, ..., None] + phase)
    levels = 0.5 + 0.25 * waves + 0.25 * (x > 0.4)[None, ..., None] - 0.1 * rng.random((24, 32, 32, 3))
    return (np.clip(levels, 0, 1) * 255).astype(np.uint8)


def only(images, name, strength=1.0, **settings):
    return perturb(images, kinds=[name], per_image=1, strength=strength, **settings)


def test_the_names_are_disjoint_from_the_corruptions():
    assert not set(PERTURBATIONS) & set(CORRUPTIONS)


def share_left(images, perturbed, corrupted):
    """The share of a change that remains after a corruption of the original: 0 if both have the same effect."""
    perturbed = perturbed.astype(float)
    change = np.square(perturbed - images).mean(axis=(1, 2, 3))
    return np.median(np.square(perturbed - corrupted).mean(axis=(1, 2, 3)) / change)


@pytest.mark.parametrize("name", NAMES)
def test_no_perturbation_behaves_like_a_corruption(images, name):
    perturbed = only(images, name, 0.7)
    for corruption in CORRUPTIONS:
        for severity in SEVERITIES:
            assert share_left(images, perturbed, corrupt(images, corruption, severity)) > 0.3, (corruption, severity)


@pytest.mark.parametrize("name", ["brightness", "contrast", "defocus_blur", "zoom_blur", "snow"])
def test_that_measure_finds_a_corruption_behind_another_severity(images, name):
    assert share_left(images, corrupt(images, name, 5, seed=9), corrupt(images, name, 4)) < 0.3


@pytest.mark.parametrize("name", NAMES)
def test_every_perturbation_changes_every_image(images, name):
    perturbed = only(images, name, 0.8)
    assert perturbed.dtype == np.uint8
    assert (perturbed != images).mean(axis=(1, 2, 3)).min() > 0.01


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("flip", "grid_shuffle", "cutout")])
def test_strength_zero_changes_nothing(images, name):
    assert np.abs(only(images, name, 0.0).astype(int) - images).max() <= 1


@pytest.mark.parametrize("name", [name for name in NAMES if name != "flip"])
def test_the_change_grows_with_the_strength(images, name):
    change = [np.abs(only(images, name, s).astype(float) - images).mean() for s in (0.15, 0.5, 1.0)]
    assert change == sorted(change)


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_depends_on_its_index_and_not_on_its_batch(images, name):
    whole = only(images, name, (0.1, 1.0), seed=5)
    order = np.array([19, 2, 2, 11])
    assert (only(images[order], name, (0.1, 1.0), seed=5, index=order) == whole[order]).all()


def test_a_mixed_batch_is_reproducible_in_any_layout(images):
    whole = perturb(images, seed=2)
    planes = np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    assert (perturb(planes, seed=2).transpose(0, 2, 3, 1) == whole).all()
    tensor = perturb(torch.from_numpy(images), seed=2)
    assert (tensor.numpy() == whole).all()
    part = np.arange(7, 12)
    assert (perturb(images[part], seed=2, index=part) == whole[part]).all()
    assert (perturb(images, seed=3) != whole).any()


@pytest.mark.parametrize("name", NAMES)
def test_grey_images_stay_grey(images, name):
    grey = images[..., 0]
    perturbed = only(grey, name, 0.9)
    assert perturbed.shape == grey.shape
    if name not in ("hue", "channel_mix"):  # these need colours to work on
        assert (perturbed != grey).any()


@pytest.mark.parametrize("name", NAMES)
def test_oblong_images_work(name):
    images = np.random.default_rng(0).integers(0, 256, (3, 20, 45, 3), dtype=np.uint8)
    assert only(images, name, 0.5).shape == images.shape


def test_the_default_is_one_or_two_kinds_of_one_family():
    plan = plan_perturbations(np.arange(4000))
    assert set(plan.names) == set(PERTURBATIONS)
    count = (plan.kinds >= 0).sum(axis=1)
    assert set(count) == {1, 2}
    assert (count == 1).mean() == pytest.approx(0.5, abs=0.04)
    families = np.array([PERTURBATIONS[name].family for name in plan.names])
    twice = plan.kinds[count == 2]
    assert (twice[:, 0] != twice[:, 1]).all()
    assert (families[twice[:, 0]] == families[twice[:, 1]]).all()
    for family, weight in FAMILY_WEIGHTS.items():
        share = (families[plan.kinds[:, 0]] == family).mean()
        assert share == pytest.approx(weight / sum(FAMILY_WEIGHTS.values()), abs=0.03)
    assert plan.strengths.min() >= 0.1
    assert plan.strengths.max() <= 1


def test_an_image_of_one_family_is_what_that_familys_kinds_alone_would_make():
    index = np.arange(500)
    plan = plan_perturbations(index, seed=3)
    families = np.array([PERTURBATIONS[name].family for name in plan.names])
    kinds = [name for name, family in zip(plan.names, families, strict=True) if family == "occlusion"]
    alone = plan_perturbations(index, seed=3, kinds=kinds)
    rows = families[plan.kinds[:, 0]] == "occlusion"
    first = [plan.names[kind] for kind in plan.kinds[rows, 0]]
    assert first == [alone.names[kind] for kind in alone.kinds[rows, 0]]
    np.testing.assert_array_equal(plan.strengths[rows], alone.strengths[rows])


def test_the_plan_tells_kind_and_strength_of_every_perturbed_image(images):
    plan = plan_perturbations(np.arange(24), seed=2)
    whole = perturb(images, seed=2)
    single = np.flatnonzero((plan.kinds >= 0).sum(axis=1) == 1)
    assert len(single) > 5
    for i in single:
        again = {"kinds": [plan.names[plan.kinds[i, 0]]], "strength": plan.strengths[i, 0], "index": [i]}
        assert (perturb(images[[i]], seed=2, per_image=1, **again) == whole[[i]]).all()


def test_weights_skew_and_counts_shape_the_mix():
    index = np.arange(4000)
    weighted = plan_perturbations(index, kinds={"rotate": 3.0, "gamma": 1.0}, per_image=1)
    assert (weighted.kinds == 0).mean() == pytest.approx(0.75, abs=0.03)
    weak, strong = (plan_perturbations(index, skew=skew, strength=(0.0, 1.0)).strengths.mean() for skew in (3, 1 / 3))
    assert weak == pytest.approx(1 / 4, abs=0.02)
    assert strong == pytest.approx(3 / 4, abs=0.02)
    assert (plan_perturbations(index, per_image=3).kinds >= 0).all()


def test_no_perturbation_at_all_gives_the_image_back(images):
    assert (perturb(images, per_image=0) == images).all()


def test_families_can_be_left_out():
    kinds = [each.name for each in PERTURBATIONS.values() if each.family != "occlusion"]
    plan = plan_perturbations(np.arange(200), kinds=kinds)
    assert "cutout" not in plan.names
    assert {each.family for each in PERTURBATIONS.values()} == set(FAMILY_WEIGHTS)


def test_the_border_is_the_users_choice(images):
    perturbed = {border: only(images, "translate", 1.0, border=border) for border in ("black", "edge", "reflect")}
    black = [(each == 0).all(axis=-1).mean() for each in perturbed.values()]
    assert black[0] > 0.2
    assert max(black[1:]) < 0.05


@pytest.mark.parametrize("name", ["rotate", "translate", "scale", "shear"])
def test_geometry_matches_scipy(images, name):
    ndimage = pytest.importorskip("scipy.ndimage")
    from densecal.shift.perturbations import effects

    plan = plan_perturbations(np.arange(3), kinds=[name], per_image=1, strength=0.4)
    perturbed = only(images[:3], name, 0.4, border="edge")
    maps = getattr(effects, name)(plan.strengths[:, 0], plan.numbers[:, 0])
    for image, result, (row_x, row_y) in zip(images, perturbed, maps, strict=False):
        y, x = np.mgrid[0:32, 0:32] - 15.5
        source_x = row_x[0] * x + row_x[1] * y + 16 * row_x[2] + 15.5
        source_y = row_y[0] * x + row_y[1] * y + 16 * row_y[2] + 15.5
        planes = [
            ndimage.map_coordinates(image[..., c].astype(float), [source_y, source_x], order=1, mode="nearest")
            for c in range(3)
        ]
        assert np.abs(np.stack(planes, axis=-1) - result).max() < 0.6


def test_posterise_leaves_as_many_levels_as_its_bits():
    ramp = np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1)
    for bits in (1, 2, 4):
        assert len(np.unique(only(ramp, "posterise", (8 - bits) / 7))) == 2**bits


def test_solarise_inverts_what_lies_above_its_threshold():
    ramp = np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1)
    result = only(ramp, "solarise", 1.0).ravel()
    assert (result[:64] == np.arange(64)).all()
    assert (result[64:] == 255 - np.arange(64, 256)).all()


def test_cutout_covers_one_square_in_one_colour(images):
    covered = only(images, "cutout", 0.5)
    for before, after in zip(images, covered, strict=True):
        rows, columns = np.nonzero((before != after).any(axis=-1))
        patch = after[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
        assert max(patch.shape[:2]) <= 11
        assert len(np.unique(patch.reshape(-1, 3), axis=0)) == 1


def test_a_shuffled_grid_keeps_every_pixel(images):
    shuffled = only(images, "grid_shuffle", 1.0)
    assert (np.sort(shuffled.reshape(24, -1, 3), axis=1) == np.sort(images.reshape(24, -1, 3), axis=1)).all()
    tiles = (shuffled != images).any(axis=-1).reshape(24, 4, 8, 4, 8).any(axis=(2, 4))
    assert tiles.mean() > 0.9


def test_a_turned_hue_keeps_grey_pixels_grey():
    grey = np.repeat(np.arange(256, dtype=np.uint8).reshape(1, 16, 16, 1), 3, axis=-1)
    assert np.abs(only(grey, "hue", 1.0).astype(int) - grey).max() <= 1


def test_one_kind_needs_no_number_per_image():
    plan = plan_perturbations(np.arange(5), kinds=["rotate"])
    assert plan.kinds.tolist() == [[0]] * 5


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kinds": ["fog"]}, r"kinds must be names from rotate, shear.*; got \['fog'\]"),
        ({"kinds": []}, r"kinds must be names from rotate.*; got \[\]"),
        ({"kinds": {"rotate": 0.0}}, r"every weight in kinds must be above 0; got \{'rotate': 0.0\}"),
        ({"strength": 1.5}, r"strength must be a number or a pair \(low, high\) from 0.0 to 1.0; got 1.5"),
        ({"strength": (0.9, 0.1)}, r"strength must be .*; got \(0.9, 0.1\)"),
        ({"per_image": 99}, "per_image must be .* from 0 to 15; got 99"),
        ({"skew": 0}, "skew must be above 0 .*; got 0"),
        ({"border": "white"}, "border must be one of 'black', 'edge', 'reflect', got 'white'"),
    ],
)
def test_bad_settings_are_named(images, settings, message):
    with pytest.raises(ValueError, match=message):
        perturb(images, **settings)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", NAMES)
def test_a_gpu_gives_what_the_cpu_gives(images, name):
    here = only(torch.from_numpy(images), name, (0.1, 1.0))
    there = only(torch.from_numpy(images).cuda(), name, (0.1, 1.0))
    difference = (there.cpu().int() - here.int()).abs()
    assert difference.max() <= 1
    assert (difference > 0).float().mean() < 1e-3
