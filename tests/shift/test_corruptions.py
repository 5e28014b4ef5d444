from __future__ import annotations

import threading
from itertools import pairwise

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from densecal.shift import CORRUPTIONS, SEVERITIES, corrupt, perturb  # noqa: E402

NAMES = tuple(CORRUPTIONS)
# Corruptions whose published constants do not increase from one severity to the next.
NOT_GROWING = {
    "elastic_transform": "the affine part shrinks while the displacement grows",
    "saturate": "severities 1 and 2 take colour away, 3 to 5 add it",
    "spatter": "water at severities 1 to 3, mud at 4 and 5",
    "frost": "more ice, but the image's own weight falls, which darkens what the ice brightened",
}
# (name, size, severity) whose next severity is about as strong. Motion blur goes from (6, 2) to (8, 2), but taps beyond
# 12 pixels weigh nothing; snow gets fewer, larger flakes; fog keeps its strength of 2.5, or nearly, and gets rougher.
ALIKE = {("motion_blur", 32, 3), ("snow", 224, 2), ("fog", 224, 3), ("fog", 224, 4)}


def photographs(count=24, size=32, seed=0):
    """Smooth colour images with edges, some of them dark: (count, size, size, 3)."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:size, 0:size] / size
    images = np.empty((count, size, size, 3))
    for image in images:
        for channel in range(3):
            a, b, c, d = rng.uniform(-1, 1, 4)
            image[..., channel] = 0.5 + 0.3 * np.sin(6 * (a * x + b * y) + 3 * c) + 0.3 * (x + d * y > 0.5 * (1 + d))
        image *= rng.uniform(0.4, 1)
    return np.clip(images * 255, 0, 255).astype(np.uint8)


@pytest.fixture(scope="module")
def images():
    return photographs()


@pytest.mark.parametrize("name", NAMES)
def test_severity_zero_is_the_image_itself(images, name):
    same = corrupt(images, name, 0)
    assert (same == images).all()
    assert not np.shares_memory(same, images)


@pytest.mark.parametrize("name", NAMES)
def test_every_severity_changes_the_image_and_leaves_the_original_alone(images, name):
    before = images.copy()
    for severity in SEVERITIES:
        changed = corrupt(images, name, severity)
        assert changed.dtype == np.uint8
        assert changed.shape == images.shape
        assert (changed != images).mean() > 0.005
    assert (images == before).all()


@pytest.mark.parametrize("name", [name for name in NAMES if name not in NOT_GROWING])
@pytest.mark.parametrize("size", [32, 224])
def test_the_mean_change_grows_with_the_severity(name, size):
    images = photographs(60 if size == 32 else 2, size)
    change = [np.abs(corrupt(images, name, s).astype(float) - images).mean() for s in SEVERITIES]
    for severity, (weaker, stronger) in enumerate(pairwise(change), start=1):
        slack = 0.9 if (name, size, severity) in ALIKE else 1.0
        assert stronger > slack * weaker, change


@pytest.mark.parametrize("name", ["saturate", "spatter"])
def test_those_that_change_sides_grow_on_each_side(images, name):
    change = [np.abs(corrupt(images, name, s).astype(float) - images).mean() for s in SEVERITIES]
    parts = (change[:2], change[2:]) if name == "saturate" else (change[:3], change[3:])
    assert all(part == sorted(part) for part in parts), change


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("severity", [1, 3, 5])
def test_a_sample_depends_on_its_index_and_not_on_its_batch(images, name, severity):
    whole = corrupt(images, name, severity, seed=3)
    assert (corrupt(images, name, severity, seed=3) == whole).all()
    order = np.array([17, 4, 4, 9])
    assert (corrupt(images[order], name, severity, seed=3, index=order) == whole[order]).all()
    assert (corrupt(images[20:21], name, severity, seed=3, index=torch.tensor([20])) == whole[20:21]).all()


def test_a_large_batch_is_cut_into_parts_that_give_the_same(monkeypatch, images):
    from densecal.shift import batches

    whole = {name: corrupt(images, name, 4) for name in NAMES}
    monkeypatch.setattr(batches, "_VALUES_CPU", 5 * 32 * 32 * 3)
    for name in NAMES:
        assert (corrupt(images, name, 4) == whole[name]).all(), name


@pytest.mark.parametrize(
    "name", ["gaussian_noise", "motion_blur", "snow", "fog", "frost", "spatter", "elastic_transform"]
)
def test_another_seed_severity_or_index_gives_other_randomness(images, name):
    same = np.repeat(images[:1], 2, axis=0)
    first, second = corrupt(same, name, 3)
    assert (first != second).any()
    other = corrupt(same, name, 3, seed=1)
    assert (other[0] != first).any()


@pytest.mark.parametrize("name", NAMES)
def test_all_layouts_and_kinds_give_the_same(images, name):
    last = corrupt(images, name, 3)
    first = corrupt(np.ascontiguousarray(images.transpose(0, 3, 1, 2)), name, 3)
    assert (first.transpose(0, 2, 3, 1) == last).all()
    tensor = torch.from_numpy(images)
    corrupted = corrupt(tensor, name, 3)
    assert isinstance(corrupted, torch.Tensor)
    assert (corrupted.numpy() == last).all()
    strided = corrupt(tensor.permute(0, 3, 1, 2), name, 3)
    assert (strided.permute(0, 2, 3, 1) == corrupted).all()


@pytest.mark.parametrize("name", NAMES)
def test_grey_images_stay_grey_in_every_layout(images, name):
    grey = images[..., 1]
    flat = corrupt(grey, name, 5)
    assert flat.shape == grey.shape
    assert (corrupt(grey[..., None], name, 5)[..., 0] == flat).all()
    assert (corrupt(grey[:, None], name, 5)[:, 0] == flat).all()
    assert (flat != grey).any()


def test_one_colour_image_is_not_read_as_three_grey_ones():
    image = torch.arange(3 * 16 * 16, dtype=torch.float64).reshape(3, 16, 16).mul(7).remainder(256).to(torch.uint8)
    for change in (lambda given: corrupt(given, "motion_blur", 5), lambda given: perturb(given, 3)):
        with pytest.raises(ValueError, match=r"\(3, 16, 16\).*image\[None\] for one.*images\[:, None\] for three"):
            change(image)
        assert change(image[None]).shape == (1, 3, 16, 16)
        assert torch.equal(change(image[:, None])[:, 0], change(image[..., None])[..., 0])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("shape", [(28, 28), (8, 8), (50, 33), (64, 97)])
def test_other_sizes_work_at_the_extreme_severities(name, shape):
    images = photographs(2, 97)[:, : shape[0], : shape[1]]
    for severity in (1, 5):
        changed = corrupt(images, name, severity)
        assert changed.shape == images.shape
        assert changed.std() > 0


@pytest.mark.parametrize("level", [0, 128, 255])
@pytest.mark.parametrize("name", ["gaussian_blur", "defocus_blur", "motion_blur", "zoom_blur", "pixelate", "contrast"])
def test_a_flat_image_stays_exactly_flat_under_blur_and_contrast(name, level):
    flat = np.full((1, 32, 32, 3), level, dtype=np.uint8)
    for severity in SEVERITIES:
        assert (corrupt(flat, name, severity) == level).all()


def test_an_empty_batch_gives_an_empty_batch():
    empty = np.zeros((0, 32, 32, 3), dtype=np.uint8)
    assert corrupt(empty, "fog", 3).shape == empty.shape


def test_memory_that_must_not_be_written_to_is_read(images):
    frozen = images.copy()
    frozen.setflags(write=False)
    assert (corrupt(frozen, "fog", 2) == corrupt(images, "fog", 2)).all()


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"name": "rain"}, ValueError, "name must be one of gaussian_noise, .*; got 'rain'"),
        ({"severity": 6}, ValueError, "severity must be an integer from 0 .* to 5, got 6"),
        ({"severity": True}, ValueError, "severity must be an integer .*, got True"),
        ({"severity": 1.0}, ValueError, "severity must be an integer .*, got 1.0"),
        ({"images": np.zeros((1, 32, 32, 3))}, TypeError, "uint8 levels from 0 to 255, not float64"),
        ({"images": [1, 2]}, TypeError, "NumPy array or a torch tensor, not list"),
        ({"images": np.zeros((32, 32, 3), np.uint8)}, ValueError, r"A single image needs a batch axis: images\[None\]"),
        ({"images": np.zeros((1, 32, 32, 4), np.uint8)}, ValueError, r"got \(1, 32, 32, 4\)"),
        ({"index": np.array([1, 2, 3])}, ValueError, "index must hold one integer for each of the 1 images"),
        ({"index": np.array([0.5])}, ValueError, "dtype float64"),
    ],
)
def test_bad_input_is_named(arguments, error, message):
    given = {"images": np.zeros((1, 32, 32, 3), np.uint8), "name": "fog", "severity": 1} | arguments
    with pytest.raises(error, match=message):
        corrupt(**given)


def test_frost_reads_the_published_overlays_from_a_folder(tmp_path, images):
    from PIL import Image

    for number in range(1, 6):
        suffix = "png" if number < 4 else "jpg"
        Image.new("RGB", (400, 300), (200, 200, 200)).save(tmp_path / f"frost{number}.{suffix}", quality=100)
    iced = corrupt(images, "frost", 1, frost_dir=tmp_path)
    assert np.abs(iced.astype(int) - np.minimum(images + 0.2 * 200, 255)).max() <= 1


def test_frost_says_which_overlays_are_missing(tmp_path, images):
    with pytest.raises(FileNotFoundError, match=r"lacks frost1.png, .*Omit frost_dir"):
        corrupt(images, "frost", 1, frost_dir=tmp_path)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", NAMES)
def test_a_gpu_gives_what_the_cpu_gives(images, name):
    for severity in SEVERITIES:
        here = corrupt(torch.from_numpy(images), name, severity)
        there = corrupt(torch.from_numpy(images).cuda(), name, severity)
        assert there.is_cuda
        difference = (there.cpu().int() - here.int()).abs()
        assert difference.max() <= 1
        assert (difference > 0).float().mean() < 1e-3


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)


def test_threads_change_nothing_but_the_time(two_threads, images):
    many = np.concatenate([images] * 4)
    side_by_side = {name: corrupt(many, name, 3) for name in NAMES}
    torch.set_num_threads(1)
    alone = {name: corrupt(many, name, 3) for name in NAMES}
    torch.set_num_threads(2)
    for name in NAMES:
        assert (side_by_side[name] == alone[name]).all(), name


def test_inference_mode_holds_in_every_thread(two_threads, images):
    many = torch.from_numpy(np.concatenate([images] * 4))
    with torch.inference_mode():
        inside = corrupt(many.clone(), "snow", 3)
    assert (corrupt(inside, "snow", 0) == corrupt(many, "snow", 3)).all()
    assert (corrupt(inside, "fog", 3) == corrupt(corrupt(many, "snow", 3), "fog", 3)).all()


def test_an_error_in_a_thread_reaches_the_caller(two_threads):
    from densecal.shift.batches import run_in_parts

    def fail(part):
        raise RuntimeError(f"part {part.start} of {threading.current_thread().name}")

    with pytest.raises(RuntimeError, match="part 0 of densecal"):
        run_in_parts(fail, torch.zeros(1, 3, 32, 32), 200)
