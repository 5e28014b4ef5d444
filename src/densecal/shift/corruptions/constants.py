"""The 18 corruptions as data: names, families and published severity constants."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, SupportsIndex

Family = Literal["noise", "blur", "weather", "digital"]
Constants = tuple[float, ...]

SEVERITIES = (1, 2, 3, 4, 5)
"""The published severities; 0 denotes the unchanged image."""


@dataclass(frozen=True)
class Corruption:
    """One corruption: its name, family, description and published constants.

    Attributes
    ----------
    symbols
        The names of the constants.
    cifar, imagenet
        The published constants of severities 1 to 5, for 32x32 and for 224x224 images.
    lengths
        The symbols that are lengths in pixels, which are scaled for images outside the published sizes.

    Examples
    --------
    >>> from densecal.shift import CORRUPTIONS
    >>> CORRUPTIONS["fog"].family
    'weather'
    >>> CORRUPTIONS["gaussian_blur"].constants(5, size=32), CORRUPTIONS["gaussian_blur"].constants(5, size=448)
    ((1.0,), (12.0,))
    """

    name: str
    family: Family
    description: str
    symbols: tuple[str, ...]
    cifar: tuple[Constants, ...]
    imagenet: tuple[Constants, ...]
    lengths: tuple[str, ...] = ()

    def constants(self, severity: int, size: int = 32) -> Constants:
        """Return the constants at a severity for images whose shorter side is `size`."""
        tables = zip(self.symbols, self.cifar[severity - 1], self.imagenet[severity - 1], strict=True)
        return tuple(constant_for_size(a, b, size, is_length=symbol in self.lengths) for symbol, a, b in tables)


def constant_for_size(small: float, large: float, size: int, *, is_length: bool) -> float:
    """Return a constant for images whose shorter side is `size`, from those for the published sizes, 32 and 224.

    Between the two, it is interpolated linearly in the logarithm of the size. Outside, the nearer one applies, and a
    length is scaled by the ratio of the sizes.
    """
    t = min(max(math.log(size / 32) / math.log(224 / 32), 0.0), 1.0)
    value = small if t == 0 else large if t == 1 else small + t * (large - small)
    return float(value * (size / min(max(size, 32), 224)) if is_length else value)


# Severities 1 to 5 as published; a corruption with one constant has a number instead of a tuple.
_CIFAR: dict[str, tuple[float | Constants, ...]] = {
    "gaussian_noise": (0.04, 0.06, 0.08, 0.09, 0.1),
    "shot_noise": (500, 250, 100, 75, 50),
    "impulse_noise": (0.01, 0.02, 0.03, 0.05, 0.07),
    "speckle_noise": (0.06, 0.1, 0.12, 0.16, 0.2),
    "gaussian_blur": (0.4, 0.6, 0.7, 0.8, 1),
    "defocus_blur": ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
    "motion_blur": ((6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)),
    "zoom_blur": ((1.06, 0.01), (1.11, 0.01), (1.16, 0.01), (1.21, 0.01), (1.26, 0.01)),
    "snow": (
        (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
        (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    ),
    "fog": ((0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)),
    "frost": ((1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)),
    "brightness": (0.05, 0.1, 0.15, 0.2, 0.3),
    "contrast": (0.75, 0.5, 0.4, 0.3, 0.15),
    "saturate": ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
    "spatter": (
        (0.62, 0.1, 0.7, 0.7, 0.5, 0),
        (0.65, 0.1, 0.8, 0.7, 0.5, 0),
        (0.65, 0.3, 1, 0.69, 0.5, 0),
        (0.65, 0.1, 0.7, 0.69, 0.6, 1),
        (0.65, 0.1, 0.5, 0.68, 0.6, 1),
    ),
    "elastic_transform": ((0, 0, 0.08), (0.05, 0.2, 0.07), (0.08, 0.06, 0.06), (0.1, 0.04, 0.05), (0.1, 0.03, 0.03)),
    "pixelate": (0.95, 0.9, 0.85, 0.75, 0.65),
    "jpeg_compression": (80, 65, 58, 50, 40),
}
_IMAGENET: dict[str, tuple[float | Constants, ...]] = {
    "gaussian_noise": (0.08, 0.12, 0.18, 0.26, 0.38),
    "shot_noise": (60, 25, 12, 5, 3),
    "impulse_noise": (0.03, 0.06, 0.09, 0.17, 0.27),
    "speckle_noise": (0.15, 0.2, 0.35, 0.45, 0.6),
    "gaussian_blur": (1, 2, 3, 4, 6),
    "defocus_blur": ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
    "motion_blur": ((10, 3), (15, 5), (15, 8), (15, 12), (20, 15)),
    "zoom_blur": ((1.11, 0.01), (1.16, 0.01), (1.21, 0.02), (1.26, 0.02), (1.31, 0.03)),
    "snow": (
        (0.1, 0.3, 3, 0.5, 10, 4, 0.8),
        (0.2, 0.3, 2, 0.5, 12, 4, 0.7),
        (0.55, 0.3, 4, 0.9, 12, 8, 0.7),
        (0.55, 0.3, 4.5, 0.85, 12, 8, 0.65),
        (0.55, 0.3, 2.5, 0.85, 12, 12, 0.55),
    ),
    "fog": ((1.5, 2), (2, 2), (2.5, 1.7), (2.5, 1.5), (3, 1.4)),
    "frost": ((1, 0.4), (0.8, 0.6), (0.7, 0.7), (0.65, 0.7), (0.6, 0.75)),
    "brightness": (0.1, 0.2, 0.3, 0.4, 0.5),
    "contrast": (0.4, 0.3, 0.2, 0.1, 0.05),
    "saturate": ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)),
    "spatter": (
        (0.65, 0.3, 4, 0.69, 0.6, 0),
        (0.65, 0.3, 3, 0.68, 0.6, 0),
        (0.65, 0.3, 2, 0.68, 0.5, 0),
        (0.65, 0.3, 1, 0.65, 1.5, 1),
        (0.67, 0.4, 1, 0.65, 1.5, 1),
    ),
    "elastic_transform": ((2, 0.7, 0.1), (2, 0.08, 0.2), (0.05, 0.01, 0.02), (0.07, 0.01, 0.02), (0.12, 0.01, 0.02)),
    "pixelate": (0.6, 0.5, 0.4, 0.3, 0.25),
    "jpeg_compression": (25, 18, 15, 10, 7),
}
_LENGTHS = {
    "gaussian_blur": "sigma",
    "defocus_blur": "radius",
    "motion_blur": "radius sigma",
    "snow": "radius sigma",
}
_LABELS: tuple[tuple[str, Family, str, str], ...] = (
    ("gaussian_noise", "noise", "Gaussian noise added to every channel, as in low light", "sigma"),
    ("shot_noise", "noise", "Poisson noise, as from photon counting", "rate"),
    ("impulse_noise", "noise", "salt-and-pepper noise, as from bit errors", "amount"),
    ("speckle_noise", "noise", "Gaussian noise proportional to the brightness", "sigma"),
    ("gaussian_blur", "blur", "convolution with a Gaussian", "sigma"),
    ("defocus_blur", "blur", "convolution with a disk, as out of focus", "radius alias_blur"),
    ("motion_blur", "blur", "blur in a random direction, as from a moving camera", "radius sigma"),
    ("zoom_blur", "blur", "the mean of many zooms, as from a camera moving ahead", "upper step"),
    ("snow", "weather", "whitened, with streaks of falling flakes", "loc scale zoom threshold radius sigma blend"),
    ("fog", "weather", "a plasma fractal added to the image", "strength wibble_decay"),
    ("frost", "weather", "blended with a picture of frost", "image_weight frost_weight"),
    ("brightness", "weather", "a constant added to V of HSV, as from daylight", "offset"),
    ("contrast", "digital", "each channel scaled towards its mean", "factor"),
    ("saturate", "digital", "S of HSV scaled and shifted: greyer, then more colourful", "factor offset"),
    ("spatter", "weather", "drops of water, then of mud, on the lens", "loc scale sigma threshold strength mud"),
    (
        "elastic_transform",
        "digital",
        "a random affine map, then a smooth random displacement; all constants in units of the image size",
        "alpha sigma affine",
    ),
    ("pixelate", "digital", "scaled down and up again with a box filter", "scale"),
    ("jpeg_compression", "digital", "compressed as JPEG", "quality"),
)


def _rows(table: tuple[float | Constants, ...]) -> tuple[Constants, ...]:
    return tuple(row if isinstance(row, tuple) else (row,) for row in table)


CORRUPTIONS: Mapping[str, Corruption] = MappingProxyType(
    {
        name: Corruption(
            name=name,
            family=family,
            description=text,
            symbols=tuple(symbols.split()),
            cifar=_rows(_CIFAR[name]),
            imagenet=_rows(_IMAGENET[name]),
            lengths=tuple(_LENGTHS.get(name, "").split()),
        )
        for name, family, text, symbols in _LABELS
    }
)
"""The 18 corruptions by name, in the order of the published tables."""


def check_corruption(name: str, severity: int) -> None:
    """Raise an error unless the corruption is known and the severity is 0 to 5."""
    if name not in CORRUPTIONS:
        raise ValueError(f"name must be one of {', '.join(CORRUPTIONS)}; got {name!r}.")
    if isinstance(severity, bool) or not isinstance(severity, SupportsIndex) or severity not in (0, *SEVERITIES):
        raise ValueError(f"severity must be an integer from 0 (unchanged) to 5, got {severity!r}.")
