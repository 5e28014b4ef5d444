"""What happens to each image: which perturbations, how strong, with which random numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import numpy as np

from densecal.shift.corruptions.keys import sample_keys

Family = Literal["geometric", "tonal", "colour", "occlusion"]


@dataclass(frozen=True)
class Perturbation:
    """One perturbation: its name, its family and what full strength means.

    Examples
    --------
    >>> from densecal.shift import PERTURBATIONS
    >>> PERTURBATIONS["rotate"].family
    'geometric'
    """

    name: str
    family: Family
    description: str


_ALL = (
    Perturbation("rotate", "geometric", "turned about its centre, by up to 45 degrees"),
    Perturbation("shear", "geometric", "sheared along x or y, by up to 0.6"),
    Perturbation("translate", "geometric", "moved by up to 0.4 of its size"),
    Perturbation("scale", "geometric", "made up to twice as large or as small"),
    Perturbation("flip", "geometric", "upside down, at any strength"),
    Perturbation("posterise", "tonal", "levels kept to fewer bits, down to 1"),
    Perturbation("solarise", "tonal", "levels above a threshold inverted; at full strength, above 64"),
    Perturbation("gamma", "tonal", "levels to the power of 1/4 to 4"),
    Perturbation("equalise", "tonal", "blended with its equalised histogram"),
    Perturbation("channel_offset", "colour", "each channel shifted, by up to 96 levels"),
    Perturbation("channel_mix", "colour", "each channel blended with another one"),
    Perturbation("hue", "colour", "the colour circle turned, by up to 180 degrees"),
    Perturbation("cutout", "occlusion", "a square of one random colour, up to 0.7 of the side"),
    Perturbation("bars", "occlusion", "bars of one random colour, over up to half of the image"),
    Perturbation("grid_shuffle", "occlusion", "cut into 4x4 tiles, up to all of which change places"),
)

PERTURBATIONS: Mapping[str, Perturbation] = MappingProxyType({each.name: each for each in _ALL})
"""Generic perturbations by name; none of them is one of the 18 corruptions."""

FAMILY_WEIGHTS: Mapping[Family, float] = MappingProxyType({"geometric": 1, "tonal": 1, "colour": 1, "occlusion": 2})
"""How often an image is perturbed by a family, when the caller names no kinds; chosen by the shift-fit study."""


@dataclass(frozen=True)
class Plan:
    """The perturbations of N images.

    Attributes
    ----------
    names
        The kinds the plan draws from.
    kinds
        (N, most) positions in `names`, in the order of application; -1 where an image gets no more.
    strengths
        (N, most) numbers from 0 to 1.
    numbers
        (N, most, 8) random numbers in [0, 1) for whatever else a kind needs.
    """

    names: tuple[str, ...]
    kinds: np.ndarray
    strengths: np.ndarray
    numbers: np.ndarray


def plan_perturbations(
    index: np.ndarray,
    seed: int = 0,
    *,
    strength: float | tuple[float, float] = (0.1, 1.0),
    skew: float = 1.0,
    kinds: Sequence[str] | Mapping[str, float] | None = None,
    per_image: int | tuple[int, int] = (1, 2),
) -> Plan:
    """Draw which perturbations each image gets; the parameters are those of `perturb`.

    Examples
    --------
    >>> import numpy as np
    >>> from densecal.shift import plan_perturbations
    >>> plan = plan_perturbations(np.arange(4), kinds=["rotate", "gamma"], per_image=1)
    >>> plan.kinds.shape
    (4, 1)
    """
    weights = _checked_kinds(kinds)
    rates = np.array(list(weights.values())) if kinds is not None else _rates_of_one_family(index, seed)
    low, high = _checked_range("strength", strength, 0.0, 1.0)
    fewest, most = (int(count) for count in _checked_range("per_image", per_image, 0, len(weights)))
    if not skew > 0:
        raise ValueError(f"skew={skew!r}: it must be above 0 (1 is uniform, above 1 prefers weak, below 1 strong).")
    count = len(index)
    lots = np.stack([_uniform(index, seed, "kind", name) for name in weights], axis=1)
    # The smallest of exponential times with these rates: draws without replacement, in proportion to the weights.
    with np.errstate(divide="ignore"):
        times = -np.log1p(-lots) / rates
    order = np.argsort(times, axis=1, kind="stable")[:, :most]
    wanted = fewest + np.floor(_uniform(index, seed, "count") * (most - fewest + 1))
    possible = np.isfinite(np.take_along_axis(times, order, axis=1))
    chosen = np.where((np.arange(most) < wanted[:, None]) & possible, order, -1)
    draws = [_uniform(index, seed, "strength", slot) for slot in range(most)]
    u = np.stack(draws, axis=1) if most else np.empty((count, 0))
    numbers = np.stack(
        [np.stack([_uniform(index, seed, "number", slot, k) for k in range(8)], axis=1) for slot in range(most)]
        or [np.empty((count, 8))],
        axis=1,
    )
    return Plan(tuple(weights), chosen, low + (high - low) * u**skew, numbers)


def _rates_of_one_family(index: np.ndarray, seed: int) -> np.ndarray:
    """Draw a family for each image and give its kinds the rate 1, all others 0, of shape (N, kinds)."""
    families, shares = list(FAMILY_WEIGHTS), np.cumsum(list(FAMILY_WEIGHTS.values()))
    drawn = np.searchsorted(shares / shares[-1], _uniform(index, seed, "family"), side="right")
    family_of_kind = np.array([families.index(each.family) for each in _ALL])
    rates: np.ndarray = (drawn[:, None] == family_of_kind).astype(np.float64)
    return rates


def _uniform(index: np.ndarray, seed: int, *context: int | str) -> np.ndarray:
    keys = sample_keys(index, seed, "perturb", *context)
    return (keys >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _checked_kinds(kinds: Sequence[str] | Mapping[str, float] | None) -> dict[str, float]:
    if kinds is None:
        return {each.name: 1.0 for each in _ALL}
    weights = (
        dict(kinds) if isinstance(kinds, Mapping) else dict.fromkeys([kinds] if isinstance(kinds, str) else kinds, 1.0)
    )
    unknown = [name for name in weights if name not in PERTURBATIONS]
    if unknown or not weights:
        raise ValueError(f"kinds={list(weights)}: choose from {', '.join(PERTURBATIONS)}.")
    if not all(weight > 0 for weight in weights.values()):
        raise ValueError(f"kinds={weights}: every weight must be above 0.")
    return weights


def _checked_range(name: str, value: float | tuple[float, float], least: float, most: float) -> tuple[float, float]:
    low, high = value if isinstance(value, tuple | list) else (value, value)
    if not least <= low <= high <= most:
        raise ValueError(f"{name}={value!r}: it must be a number, or a pair (low, high), from {least} to {most}.")
    return low, high
