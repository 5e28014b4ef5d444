"""Reference implementation of the corruptions, one image at a time, with NumPy, SciPy, OpenCV, scikit-image and Pillow.

Written independently of `densecal.shift`, from the published definitions only, for tests and benchmarks. Images are
uint8 of shape (height, width, 3); results are uint8, or floats before clipping.
"""

from __future__ import annotations

import io
from collections.abc import Callable

import cv2
import numpy as np
from PIL import Image
from scipy.ndimage import map_coordinates
from scipy.ndimage import zoom as scipy_zoom
from skimage.color import hsv2rgb, rgb2hsv
from skimage.filters import gaussian
from skimage.util import random_noise

Generator = np.random.Generator
Reference = Callable[..., np.ndarray]


def finish(unit: np.ndarray) -> np.ndarray:
    return np.clip(unit, 0, 1) * 255


def gaussian_noise(image: np.ndarray, rng: Generator, sigma: float) -> np.ndarray:
    return finish(image / 255 + rng.normal(scale=sigma, size=image.shape))


def shot_noise(image: np.ndarray, rng: Generator, rate: float) -> np.ndarray:
    return finish(rng.poisson(image / 255 * rate) / rate)


def impulse_noise(image: np.ndarray, rng: Generator, amount: float) -> np.ndarray:
    return finish(random_noise(image / 255, mode="s&p", amount=amount, rng=rng))


def speckle_noise(image: np.ndarray, rng: Generator, sigma: float) -> np.ndarray:
    x = image / 255
    return finish(x + x * rng.normal(scale=sigma, size=image.shape))


def gaussian_blur(image: np.ndarray, rng: Generator, sigma: float) -> np.ndarray:
    return finish(gaussian(image / 255, sigma=sigma, channel_axis=-1))


def defocus_blur(image: np.ndarray, rng: Generator, radius: float, alias_blur: float) -> np.ndarray:
    if radius <= 8:
        line, window = np.arange(-8, 9), (3, 3)
    else:
        line, window = np.arange(-radius, radius + 1), (5, 5)
    across, down = np.meshgrid(line, line)
    disk = (np.square(across) + np.square(down) <= radius**2).astype(np.float32)
    kernel = cv2.GaussianBlur(disk / disk.sum(), ksize=window, sigmaX=alias_blur)
    return finish(cv2.filter2D(image / 255, -1, kernel))


def streak(plane: np.ndarray, radius: float, sigma: float, degrees: float) -> np.ndarray:
    """Apply ImageMagick's motion blur: one-sided integer taps, repeated border pixels, rounded values."""
    height, width = plane.shape[:2]
    weights = np.exp(-np.square(np.arange(2 * int(np.ceil(radius)) + 1)) / (2 * sigma**2))
    weights /= weights.sum()
    total = np.zeros(plane.shape)
    for step, weight in enumerate(weights):
        dx = int(np.ceil(step * np.cos(np.deg2rad(degrees)) - 0.5))
        dy = int(np.ceil(step * np.sin(np.deg2rad(degrees)) - 0.5))
        rows = np.clip(np.arange(height) + dy, 0, height - 1)
        columns = np.clip(np.arange(width) + dx, 0, width - 1)
        total += weight * plane[rows][:, columns]
    return np.rint(total)


def motion_blur(image: np.ndarray, rng: Generator, radius: float, sigma: float) -> np.ndarray:
    return streak(image, radius, sigma, rng.uniform(-45, 45))


def middle_zoom(image: np.ndarray, factor: float) -> np.ndarray:
    side = image.shape[0]
    crop = int(np.ceil(side / factor))
    edge = (side - crop) // 2
    zoomed = scipy_zoom(image[edge : edge + crop, edge : edge + crop], (factor, factor, 1), order=1)
    edge = (zoomed.shape[0] - side) // 2
    return zoomed[edge : edge + side, edge : edge + side]


def zoom_blur(image: np.ndarray, rng: Generator, upper: float, step: float) -> np.ndarray:
    x = (image / 255).astype(np.float32)
    layers = [x] + [middle_zoom(x, factor) for factor in np.arange(1, upper, step)]
    return finish(sum(layers) / len(layers))


def snow(
    image: np.ndarray,
    rng: Generator,
    loc: float,
    scale: float,
    zoom: float,
    threshold: float,
    radius: float,
    sigma: float,
    blend: float,
) -> np.ndarray:
    x = (image / 255).astype(np.float32)
    flakes = middle_zoom(rng.normal(loc, scale, x.shape[:2])[..., None], zoom)[..., 0]
    flakes = np.where(flakes < threshold, 0, np.clip(flakes, 0, 1))
    flakes = streak(np.floor(flakes * 255), radius, sigma, rng.uniform(-135, -45))[..., None] / 255
    white = np.maximum(x, cv2.cvtColor(x, cv2.COLOR_RGB2GRAY)[..., None] * 1.5 + 0.5)
    return finish(blend * x + (1 - blend) * white + flakes + flakes[::-1, ::-1])


def plasma(side: int, decay: float, rng: Generator) -> np.ndarray:
    """Return diamond-square noise on a torus: per level, first the diamond steps, then the square steps."""
    ground = np.zeros((side, side))
    half, amplitude = side // 2, 1.0
    while half:
        lattice = ground[::half, ::half]
        down, across = np.indices(lattice.shape)
        diagonal = sum(np.roll(lattice, (dy, dx), (0, 1)) for dy in (-1, 1) for dx in (-1, 1))
        noise = amplitude * rng.uniform(-1, 1, lattice.shape)
        lattice = np.where(down * across % 2 == 1, diagonal / 4 + noise, lattice)
        straight = sum(np.roll(lattice, shift, axis) for shift in (-1, 1) for axis in (0, 1))
        ground[::half, ::half] = np.where((down + across) % 2 == 1, straight / 4 + noise, lattice)
        half, amplitude = half // 2, amplitude / decay**2
    ground -= ground.min()
    return ground / ground.max()


def fog(image: np.ndarray, rng: Generator, strength: float, decay: float) -> np.ndarray:
    x = image / 255
    side = 1 << int(np.ceil(np.log2(max(x.shape[:2]))))
    top = x.max()
    x = x + strength * plasma(side, decay, rng)[: x.shape[0], : x.shape[1], None]
    return finish(x * top / (top + strength))


def brightness(image: np.ndarray, rng: Generator, offset: float) -> np.ndarray:
    hsv = rgb2hsv(image / 255)
    hsv[..., 2] = np.clip(hsv[..., 2] + offset, 0, 1)
    return finish(hsv2rgb(hsv))


def saturate(image: np.ndarray, rng: Generator, factor: float, offset: float) -> np.ndarray:
    hsv = rgb2hsv(image / 255)
    hsv[..., 1] = np.clip(hsv[..., 1] * factor + offset, 0, 1)
    return finish(hsv2rgb(hsv))


def contrast(image: np.ndarray, rng: Generator, factor: float) -> np.ndarray:
    x = image / 255
    mean = x.mean(axis=(0, 1), keepdims=True)
    return finish((x - mean) * factor + mean)


def spatter(
    image: np.ndarray,
    rng: Generator,
    loc: float,
    scale: float,
    sigma: float,
    threshold: float,
    strength: float,
    mud: float,
) -> np.ndarray:
    x = image / 255
    liquid = gaussian(rng.normal(loc, scale, x.shape[:2]), sigma=sigma)
    liquid[liquid < threshold] = 0
    if mud:
        cover = gaussian((liquid > threshold).astype(np.float32), sigma=strength)
        cover = np.where(cover < 0.8, 0, cover)[..., None]
        return finish(x * (1 - cover) + cover * np.array([63, 42, 20]) / 255)
    drops = (liquid * 255).astype(np.uint8)
    distance = cv2.distanceTransform(255 - cv2.Canny(drops, 50, 150), cv2.DIST_L2, 5)
    levels = cv2.equalizeHist(cv2.blur(np.minimum(distance, 20), (3, 3)).astype(np.uint8))
    lit = cv2.filter2D(levels, cv2.CV_8U, np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]]))
    shine = drops * cv2.blur(lit, (3, 3)).astype(np.float32)
    shine = strength * shine / max(shine.max(), 1)
    return finish(x + shine[..., None] * np.array([175, 238, 238]) / 255)


def elastic_transform(image: np.ndarray, rng: Generator, alpha: float, sigma: float, affine: float) -> np.ndarray:
    x = (image / 255).astype(np.float32)
    height, width = x.shape[:2]
    centre, reach = np.array([height, width]) // 2, min(height, width) // 3
    before = np.float32([centre + reach, centre + np.array([reach, -reach]), centre - reach])
    after = before + rng.uniform(-affine, affine, before.shape).astype(np.float32)
    matrix = cv2.getAffineTransform(before, after)
    x = cv2.warpAffine(x, matrix, (width, height), borderMode=cv2.BORDER_REFLECT_101)
    dx, dy = (
        gaussian(rng.uniform(-1, 1, (height, width)), sigma, mode="reflect", truncate=3) * alpha if alpha else 0
        for _ in range(2)
    )
    rows, columns = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    places = [rows + dy, columns + dx]
    planes = [map_coordinates(x[..., c], places, order=1, mode="reflect") for c in range(3)]
    return finish(np.stack(planes, axis=-1))


def pixelate(image: np.ndarray, rng: Generator, scale: float) -> np.ndarray:
    height, width = image.shape[:2]
    small = Image.fromarray(image).resize((int(width * scale), int(height * scale)), Image.Resampling.BOX)
    return np.asarray(small.resize((width, height), Image.Resampling.BOX))


def jpeg_compression(image: np.ndarray, rng: Generator, quality: float) -> np.ndarray:
    file = io.BytesIO()
    Image.fromarray(image).save(file, "JPEG", quality=round(quality))
    return np.asarray(Image.open(file))


def frost(image: np.ndarray, rng: Generator, weight: float, ice_weight: float, overlay: np.ndarray) -> np.ndarray:
    height, width = image.shape[:2]
    top, left = rng.integers(overlay.shape[0] - height), rng.integers(overlay.shape[1] - width)
    return np.clip(weight * image + ice_weight * overlay[top : top + height, left : left + width], 0, 255)


REFERENCES: dict[str, Reference] = {
    each.__name__: each
    for each in (
        gaussian_noise,
        shot_noise,
        impulse_noise,
        speckle_noise,
        gaussian_blur,
        defocus_blur,
        motion_blur,
        zoom_blur,
        snow,
        fog,
        frost,
        brightness,
        contrast,
        saturate,
        spatter,
        elastic_transform,
        pixelate,
        jpeg_compression,
    )
}
