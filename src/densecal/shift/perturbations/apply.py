"""Perturb a batch of images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from densecal.arrays.checks import check_choice
from densecal.shift.batches import Batch, Images, Index, run_in_parts
from densecal.shift.perturbations import effects
from densecal.shift.perturbations.plan import Border, PerturbationPlan, plan_perturbations

_MAPS = ("rotate", "shear", "translate", "scale", "flip")
_TABLES = ("posterise", "solarise", "gamma", "channel_offset")
_MATRICES = ("channel_mix", "hue")


def perturb(
    images: Images,
    seed: int = 0,
    *,
    strength: float | tuple[float, float] = (0.1, 1.0),
    skew: float = 1.0,
    kinds: Sequence[str] | Mapping[str, float] | None = None,
    per_image: int | tuple[int, int] = (1, 2),
    border: Border = "black",
    index: Index | None = None,
) -> Images:
    """Apply random perturbations that resemble none of the 18 corruptions.

    Parameters
    ----------
    images
        uint8 NumPy array or torch tensor, in the layouts of `corrupt`.
    seed
        Seed of the perturbations.
    strength
        A fixed strength from 0 to 1, or the range to draw from.
    skew
        Strengths are `low + (high - low) * u**skew` with u uniform: above 1 favours weak, below 1 strong perturbations.
    kinds
        Names from `PERTURBATIONS`, or names with weights. By default one family per image is drawn by
        `FAMILY_WEIGHTS`, and all perturbations of the image are of that family.
    per_image
        Number of different perturbations per image, or the range to draw it from; at most all `kinds`.
    border
        How geometric perturbations fill the area outside the image.
    index
        Positions of the samples in their data set; by default 0 to N - 1. The result depends only on (seed, index)
        and the options; `plan_perturbations` returns the kinds and strengths of each sample.

    Returns
    -------
    images
        New uint8 images of the same array type, shape and device.

    Examples
    --------
    >>> from densecal.shift import perturb
    >>> images = np.arange(2 * 32 * 32 * 3, dtype=np.uint8).reshape(2, 32, 32, 3)
    >>> perturb(images, seed=1, kinds=["rotate", "cutout"], strength=(0.3, 0.6)).shape
    (2, 32, 32, 3)
    """
    check_choice("border", border, Border)
    batch = Batch.of(images, index)
    plan = plan_perturbations(batch.index, seed, strength=strength, skew=skew, kinds=kinds, per_image=per_image)
    planes = batch.planes.clone()
    for slot in range(plan.kinds.shape[1]):
        for position, name in enumerate(plan.names):
            chosen = np.flatnonzero(plan.kinds[:, slot] == position)
            _apply(planes, chosen, name, plan, slot, border)
    return batch.like(planes, images)


def _apply(planes: Tensor, chosen: np.ndarray, name: str, plan: PerturbationPlan, slot: int, border: Border) -> None:
    """Perturb the chosen images in place."""

    def work(part: slice) -> None:
        rows = chosen[part]
        where = torch.from_numpy(rows).to(planes.device)
        picked = planes.index_select(0, where)
        planes[where] = _perturb(picked, name, plan.strengths[rows, slot], plan.numbers[rows, slot], border)

    run_in_parts(work, planes, len(chosen))


def _perturb(images: Tensor, name: str, strength: np.ndarray, numbers: np.ndarray, border: Border) -> Tensor:
    effect = getattr(effects, name)
    if name in _MAPS:
        return effects.warp(images, effect(strength, numbers), border)
    if name in _TABLES:
        return effects.apply_tables(images, effect(strength, numbers))
    if name in _MATRICES:
        return effects.apply_matrices(images, effect(strength, numbers))
    changed: Tensor = effect(images, strength, numbers)
    return changed
