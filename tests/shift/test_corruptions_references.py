"""Every corruption compared with an independent one in NumPy, SciPy, OpenCV, scikit-image or Pillow."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
cv2 = pytest.importorskip("cv2")
pytest.importorskip("skimage")

from densecal.shift import CORRUPTIONS, SEVERITIES, corrupt  # noqa: E402
from densecal.shift.corruptions.randomness import Draw  # noqa: E402
from densecal.shift.random_keys import sample_keys  # noqa: E402

CPU = torch.device("cpu")
ANALYTIC = ("gaussian_blur", "defocus_blur", "zoom_blur", "brightness", "contrast", "saturate", "pixelate")
BLENDED = ("gaussian_noise", "speckle_noise", "motion_blur", "snow", "fog", "spatter", "elastic_transform")


@pytest.fixture(scope="module")
def reference():
    file = Path(__file__).parents[2] / "benchmarks" / "reference_corruptions.py"
    spec = importlib.util.spec_from_file_location("reference_corruptions", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pictures(size):
    """Images with flat parts, slopes, edges, grain, and pixels that are black, white or grey."""
    rng = np.random.default_rng(size)
    y, x = np.mgrid[0:size, 0:size] / size
    slopes = np.stack([x, y, 1 - x * y], axis=-1)
    edges = np.stack([(x > 0.3) * 0.8, (x + y > 1.1) * 1.0, (np.hypot(x - 0.5, y - 0.5) < 0.3) * 0.6], axis=-1)
    grain = rng.random((size, size, 3))
    grey = np.repeat(np.sin(9 * x + 5 * y)[..., None] * 0.5 + 0.5, 3, axis=-1)
    stack = np.stack([slopes, edges, 0.5 * slopes + 0.5 * edges, 0.8 * slopes + 0.2 * grain, grey])
    return np.clip(stack * 255, 0, 255).astype(np.uint8)


def levels(unit):
    return np.clip(np.asarray(unit, dtype=np.float64), 0, 255).astype(np.uint8)


def differences(ours, theirs):
    gap = np.abs(ours.astype(int) - theirs.astype(int))
    return gap.max(), (gap > 0).mean()


@pytest.mark.parametrize("size", [32, 224])
@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize("name", ANALYTIC)
def test_what_holds_no_chance_matches_level_for_level(reference, name, severity, size):
    images = pictures(size)[: 5 if size == 32 else 2]
    constants = CORRUPTIONS[name].constants(severity, size)
    theirs = np.stack([levels(reference.REFERENCES[name](image, None, *constants)) for image in images])
    most, share = differences(corrupt(images, name, severity), theirs)
    # Both truncate levels. In flat areas of the image, rounding errors decrease an integer level by one in the
    # reference, but not in densecal.
    assert most <= (0 if name == "pixelate" else 1)
    assert share < (0.001 if name == "contrast" else 0.3)


@pytest.mark.parametrize("quality", [5, 7, 10, 25, 40, 50, 58, 80, 95])
@pytest.mark.parametrize("shape", [(32, 32), (224, 160), (17, 41), (9, 4), (1, 1)])
def test_jpeg_is_pillows_jpeg_in_every_level(reference, shape, quality):
    from densecal.shift.corruptions.jpeg import jpeg_compression

    rng = np.random.default_rng(quality)
    smooth = pictures(224)[2:4, : shape[0], : shape[1]]
    images = np.concatenate([smooth, rng.integers(0, 256, (2, *shape, 3), dtype=np.uint8)])
    draw = Draw(sample_keys(np.arange(4), 0), CPU)
    colour = jpeg_compression(torch.from_numpy(images).permute(0, 3, 1, 2).contiguous(), (quality,), draw)
    theirs = np.stack([reference.jpeg_compression(image, None, quality) for image in images])
    assert (colour.permute(0, 2, 3, 1).numpy() == theirs).all()
    grey = jpeg_compression(torch.from_numpy(images[:, None, :, :, 0].copy()), (quality,), draw)
    theirs = np.stack([reference.jpeg_compression(image[..., 0], None, quality) for image in images])
    assert (grey[:, 0].numpy() == theirs).all()


@pytest.mark.parametrize("severity", SEVERITIES)
def test_jpeg_compression_is_pillows_at_the_published_quality(reference, severity):
    images = pictures(32)
    quality = CORRUPTIONS["jpeg_compression"].cifar[severity - 1][0]
    theirs = np.stack([reference.jpeg_compression(image, None, quality) for image in images])
    assert (corrupt(images, "jpeg_compression", severity) == theirs).all()


class Replay:
    """Replaces NumPy's generator in a reference by the numbers that densecal draws for a sample."""

    def __init__(self, name, severity, index, shape):
        self.draw = Draw(sample_keys(np.array([index]), 0, name, severity), CPU)
        self.name, self.height, self.width = name, shape[0], shape[1]
        self.calls = 0

    def numbers(self, kind, stream, count):
        return getattr(self.draw, kind)(stream, count)[0].numpy().astype(np.float64)

    def normal(self, loc=0.0, scale=1.0, size=None):
        if len(size) == 3:  # densecal draws channel by channel
            drawn = self.numbers("normal", 0, int(np.prod(size))).reshape(size[2], size[0], size[1]).transpose(1, 2, 0)
        else:
            drawn = self.numbers("normal", 0, int(np.prod(size))).reshape(size)
        return loc + scale * drawn

    def uniform(self, low, high, size=None):
        if size is None:  # a direction, in steps of 1/4096 of the range
            stream = 1 if self.name == "snow" else 0
            step = int(self.draw.bits(stream, 1)[0, 0]) & 4095
            return low + (step + 0.5) / 4096 * (high - low)
        if self.name == "fog":  # the plasma's coarser levels take every second number of the finer ones
            side = 1 << (max(self.height, self.width) - 1).bit_length()
            drawn = self.numbers("uniform", 0, side * side).reshape(side, side)[:: side // size[0], :: side // size[0]]
        elif size == (3, 2):
            drawn = self.numbers("uniform", 0, 6).reshape(3, 2)
        else:
            drawn = self.numbers("uniform", 1, 2 * size[0] * size[1]).reshape(2, *size)[self.calls]
            self.calls += 1
        return low + drawn * (high - low)


@pytest.mark.parametrize("size", [32, 224])
@pytest.mark.parametrize("severity", SEVERITIES)
@pytest.mark.parametrize("name", BLENDED)
def test_with_the_same_random_numbers_the_rest_matches_too(reference, name, severity, size):
    images = pictures(size)[: 5 if size == 32 else 1]
    constants = CORRUPTIONS[name].constants(severity, size)
    if name == "elastic_transform":
        constants = [value * (32 if size == 32 else 244) for value in constants]
    theirs = []
    for index, image in enumerate(images):
        replay = Replay(name, severity, index, image.shape)
        theirs.append(levels(reference.REFERENCES[name](image, replay, *constants)))
    gap = np.abs(corrupt(images, name, severity).astype(int) - np.stack(theirs))
    if name == "elastic_transform" and int(cv2.__version__.split(".")[0]) < 5:
        assert gap.mean() < 1.5  # older OpenCV rounds the coordinates of a warp to 1/32 pixel
    else:
        # A smoothed value close to a threshold may fall on either side of it.
        assert (gap > 1).mean() < 5e-4
        assert gap.mean() < 0.03


def test_motion_blur_is_imagemagicks():
    # convert image.pgm -motion-blur 3x1.5+30 (and +-100) by ImageMagick 6.9.11-60 Q16
    from densecal.shift.corruptions import blur

    image = ((np.arange(100) * 37) % 256).astype(np.uint8).reshape(10, 10)
    expected = {
        30.0: "3b514a6f94b6843b57677297b988415750728e9e8b445a53789dbf8b3b4b567ba0c2914a60567282c5944d635c81a6c88e32"
        "665f84a9cb9a537591a1acce9c566c658aacc8d8596f688dafd4a25975858fb4d9a74f486d8fabba23486d92a59e6d233f4f",
        -100.0: "0022476c91b6db12254a3052779c567ba042557a863d6287567ba09940658551769b944d729754799f954e7398597ea39851"
        "799b5c81a69b557a9e5f86a99e587da16287aca15d80a4658aafa45e83a76a8db2a76186aa6b90b5416489ad6e93b842678c",
    }
    for degrees, answer in expected.items():
        draw = Draw(sample_keys(np.array([0]), 0), CPU)
        planes = torch.from_numpy(image)[None, None]
        ours = blur.smear(planes, 3, 1.5, (degrees, degrees), draw, stream=0)[0, 0].numpy()
        theirs = np.frombuffer(bytes.fromhex(answer), dtype=np.uint8).reshape(10, 10)
        assert np.abs(ours.astype(int) - theirs).max() <= 1
        assert (ours == theirs).mean() > 0.9


@pytest.mark.parametrize(("scale", "sigma", "threshold"), [(0.1, 0.7, 0.7), (0.3, 1.0, 0.69), (0.3, 3.0, 0.68)])
def test_the_steps_of_spatter_are_opencvs(scale, sigma, threshold):
    from skimage.filters import gaussian

    from densecal.shift.corruptions.spatter import canny_edges, chamfer_distance, equalise

    rng = np.random.default_rng(0)
    for size in (32, 75):
        liquid = gaussian(rng.normal(0.65, scale, (size, size)), sigma=sigma)
        drops = (np.where(liquid < threshold, 0, liquid) * 255).astype(np.uint8)
        edges = cv2.Canny(drops, 50, 150)
        assert (canny_edges(torch.from_numpy(drops.astype(np.int32))[None])[0].numpy() == (edges > 0)).all()
        distance = np.minimum(cv2.distanceTransform(255 - edges, cv2.DIST_L2, 5), 20)
        ours = chamfer_distance(torch.from_numpy(edges > 0)[None])[0].numpy()
        assert np.abs(np.minimum(ours, 20) - distance).max() < 1e-4
        rounded = distance.astype(np.uint8)
        equal = equalise(torch.from_numpy(rounded.astype(np.int32))[None])[0].numpy()
        assert (equal == cv2.equalizeHist(rounded)).all()


def test_an_image_without_drops_stays_as_it_is():
    from densecal.shift.corruptions.spatter import spatter

    images = torch.from_numpy(pictures(32)).permute(0, 3, 1, 2).contiguous()
    draw = Draw(sample_keys(np.arange(5), 0), CPU)
    for mud in (0, 1):
        assert (spatter(images, (0.0, 0.01, 1.0, 0.7, 0.5, mud), draw) == images).all()
