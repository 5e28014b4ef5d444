"""The plan of a perturbed batch: the perturbations of each image, their strengths and their random numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from densecal.shift.random_keys import sample_keys

Family = Literal["geometric", "tonal", "colour", "occlusion"]
Border = Literal["black", "edge", "reflect"]


@dataclass(frozen=True)
class Perturbation:
    """One perturbation: its name, its family and its effect at full strength."""

    name: str
    family: Family
    description: str


_ALL = (
    Perturbation("rotate", "geometric", "rotated about its centre by up to 45 degrees"),
    Perturbation("shear", "geometric", "sheared along x or y by up to 0.6"),
    Perturbation("translate", "geometric", "translated by up to 0.4 of its size"),
    Perturbation("scale", "geometric", "enlarged or reduced up to twofold"),
    Perturbation("flip", "geometric", "flipped upside down at any strength"),
    Perturbation("posterise", "tonal", "levels reduced to fewer bits, down to 1"),
    Perturbation("solarise", "tonal", "levels above a threshold inverted; at full strength, above 64"),
    Perturbation("gamma", "tonal", "levels raised to a power from 1/4 to 4"),
    Perturbation("equalise", "tonal", "blended with its histogram-equalised copy"),
    Perturbation("channel_offset", "colour", "each channel shifted by up to 96 levels"),
    Perturbation("channel_mix", "colour", "each channel blended with another one"),
    Perturbation("hue", "colour", "hue rotated by up to 180 degrees"),
    Perturbation("cutout", "occlusion", "a square of one random colour, up to 0.7 of the side"),
    Perturbation("bars", "occlusion", "bars of one random colour, over up to half of the image"),
    Perturbation("grid_shuffle", "occlusion", "a fraction of 4x4 tiles permuted, up to all of them"),
)

PERTURBATIONS: Mapping[str, Perturbation] = MappingProxyType({each.name: each for each in _ALL})
"""The perturbations by name; none of them is one of the 18 corruptions."""

FAMILY_WEIGHTS: Mapping[Family, float] = MappingProxyType({"geometric": 1, "tonal": 1, "colour": 1, "occlusion": 2})
"""Relative frequency of each family if no kinds are given, chosen in the study of the shift fit."""


class PerturbationOptions(TypedDict, total=False):
    """The options of `perturb`, for functions that pass them on."""

    strength: float | tuple[float, float]
    skew: float
    kinds: Sequence[str] | Mapping[str, float] | None
    per_image: int | tuple[int, int]
    border: Border


STRENGTHS = ("weak", "medium", "strong")


@dataclass(frozen=True)
class PerturbationPlan:
    """The perturbations of N images, as returned by `plan_perturbations`."""

    names: tuple[str, ...]
    kinds: NDArray[np.int64]
    strengths: NDArray[np.float64]
    numbers: NDArray[np.float64]

    def domains(self) -> NDArray[np.str_]:
        """Return the domain of each image, such as "rotate/weak": its strongest perturbation, and how strong it is."""
        applied = np.where(self.kinds >= 0, self.strengths, -1.0)
        main = applied.argmax(axis=1)[:, None]
        kinds = np.take_along_axis(self.kinds, main, axis=1)[:, 0]
        levels = np.minimum(len(STRENGTHS) - 1, np.take_along_axis(self.strengths, main, axis=1)[:, 0] * len(STRENGTHS))
        named = [
            f"{self.names[kind]}/{STRENGTHS[int(level)]}" if kind >= 0 else "clean"
            for kind, level in zip(kinds, levels, strict=True)
        ]
        return np.array(named, dtype=np.str_)


def plan_perturbations(
    index: ArrayLike,
    seed: int = 0,
    *,
    strength: float | tuple[float, float] = (0.1, 1.0),
    skew: float = 1.0,
    kinds: Sequence[str] | Mapping[str, float] | None = None,
    per_image: int | tuple[int, int] = (1, 2),
) -> PerturbationPlan:
    """Draw the perturbations that `perturb` applies to each image with the same index, seed and options.

    Parameters
    ----------
    index
        Positions of the samples in their data set, (N,) integers.
    seed, strength, skew, kinds, per_image
        As in `perturb`.

    Returns
    -------
    PerturbationPlan
        `names`, the candidate kinds; `kinds` (N, max per image), positions in `names` in the order of application,
        padded with -1; `strengths` (N, max per image), from 0 to 1; `numbers` (N, max per image, 8), the other random
        numbers of each perturbation.

    Examples
    --------
    The kind and strength of each sample's first perturbation:

    >>> from densecal.shift import plan_perturbations
    >>> plan = plan_perturbations(np.arange(3), kinds=["rotate", "gamma"], per_image=1)
    >>> [plan.names[kind] for kind in plan.kinds[:, 0]], plan.strengths[:, 0].round(2).tolist()
    (['gamma', 'gamma', 'rotate'], [0.97, 0.86, 0.34])
    """
    weights = _checked_kinds(kinds)
    low, high = _checked_range("strength", strength, 0.0, 1.0)
    counts = _checked_range("per_image", per_image, 0, len(PERTURBATIONS))
    fewest, most = (min(int(count), len(weights)) for count in counts)
    if not skew > 0:
        raise ValueError(f"skew must be above 0 (1 is uniform, above 1 favours weak, below 1 strong); got {skew!r}.")
    index = np.asarray(index)
    rates = np.array(list(weights.values())) if kinds is not None else _rates_of_one_family(index, seed)
    lots = np.stack([_uniform(index, seed, "kind", name) for name in weights], axis=1)
    u, numbers = np.empty((len(index), most)), np.empty((len(index), most, 8))
    for slot in range(most):
        u[:, slot] = _uniform(index, seed, "strength", slot)
        for k in range(8):
            numbers[:, slot, k] = _uniform(index, seed, "number", slot, k)
    wanted = fewest + np.floor(_uniform(index, seed, "count") * (most - fewest + 1))
    drawn = _without_replacement(lots, rates, most)
    chosen = np.where(np.arange(most) < wanted[:, None], drawn, -1)
    return PerturbationPlan(tuple(weights), chosen, low + (high - low) * u**skew, numbers)


def _without_replacement(lots: np.ndarray, rates: np.ndarray, count: int) -> np.ndarray:
    """Draw `count` positions per row in proportion to the rates; -1 where no further position has a rate above 0."""
    with np.errstate(divide="ignore"):
        times = -np.log1p(-lots) / rates  # exponential waiting times: the shortest are drawn
    order = np.argsort(times, axis=1, kind="stable")[:, :count]
    return np.where(np.isfinite(np.take_along_axis(times, order, axis=1)), order, -1)


def _rates_of_one_family(index: np.ndarray, seed: int) -> np.ndarray:
    """Return (N, kinds) rates: 1 for the kinds of the family drawn for the image, 0 for all others."""
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
    if isinstance(kinds, str):
        kinds = [kinds]
    weights = dict(kinds) if isinstance(kinds, Mapping) else dict.fromkeys(kinds, 1.0)
    if not weights or not set(weights) <= set(PERTURBATIONS):
        raise ValueError(f"kinds must be names from {', '.join(PERTURBATIONS)}; got {list(weights)}.")
    if not all(weight > 0 for weight in weights.values()):
        raise ValueError(f"every weight in kinds must be above 0; got {weights}.")
    return weights


def _checked_range(name: str, value: float | tuple[float, float], least: float, most: float) -> tuple[float, float]:
    low, high = value if isinstance(value, tuple | list) else (value, value)
    if not least <= low <= high <= most:
        raise ValueError(f"{name} must be a number or a pair (low, high) from {least} to {most}; got {value!r}.")
    return low, high
